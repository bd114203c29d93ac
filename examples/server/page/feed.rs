//! The viewers of the page, and the frames of events that they get.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{MissedTickBehavior, interval},
};
use tollgate::observe::{Event, Observer};

use crate::page::{comparison::Comparison, record};

/// Viewers at a time.
const MOST_VIEWERS: usize = 16;
/// Frames that wait for a viewer: one that is more than three seconds behind is dropped, and may connect again.
const MOST_FRAMES: usize = 32;
/// Events of a frame. Further ones are counted.
const MOST_EVENTS: usize = 500;
const FRAME: Duration = Duration::from_millis(100);
/// The longest time without a frame, in multiples of [`FRAME`]: a frame shows which viewers have gone away.
const LONGEST_SILENCE: u32 = 10;

/// An observer that records events while there are viewers. Clones share the viewers.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether there are viewers. All that an event costs without them.
    is_watched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    viewers: Vec<Sender<Bytes>>,
    /// Events since the last frame, each with a comma behind it.
    events: String,
    count: usize,
    comparison: Comparison,
    is_closed: bool,
}

impl Feed {
    /// A new viewer's frames; `None` if there are as many viewers as allowed, or the server ends.
    pub(super) fn join(&self) -> Option<Receiver<Bytes>> {
        let mut state = self.state();
        if state.is_closed || state.viewers.len() >= MOST_VIEWERS {
            return None;
        }
        let (viewer, frames) = channel(MOST_FRAMES);
        state.viewers.push(viewer);
        if !self.0.is_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().send_frames());
        }
        Some(frames)
    }

    /// Ends all streams, which would otherwise keep a server that ends.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.viewers.clear();
    }

    /// Sends frames until the last viewer has gone.
    async fn send_frames(self) {
        let mut ticks = interval(FRAME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silence = 0;
        loop {
            ticks.tick().await;
            let mut state = self.state();
            silence += 1;
            if state.count > 0 || silence >= LONGEST_SILENCE {
                silence = 0;
                let frame = state.take_frame();
                // Full: the viewer is too slow. Closed: it has gone away.
                state.viewers.retain(|viewer| viewer.try_send(frame.clone()).is_ok());
            }
            if state.viewers.is_empty() {
                self.0.is_watched.store(false, Ordering::Relaxed);
                *state = State { is_closed: state.is_closed, ..State::default() };
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_frame(&mut self) -> Bytes {
        let events = mem::take(&mut self.events);
        let left_out = mem::take(&mut self.count).saturating_sub(MOST_EVENTS);
        let (now, events) = (record::now(), events.trim_end_matches(','));
        Bytes::from(format!("data: {{\"now\":{now},\"left_out\":{left_out},\"events\":[{events}]}}\n\n"))
    }
}

impl Observer for Feed {
    fn on_event(&self, event: &Event<'_>) {
        if !self.0.is_watched.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        // The comparison judges every request, also those that a frame leaves out.
        let beside = state.comparison.judge(event);
        if let Some(record) = record::of(event, beside) {
            state.count += 1;
            if state.count <= MOST_EVENTS {
                state.events.push_str(&record.to_string());
                state.events.push(',');
            }
        }
    }
}
