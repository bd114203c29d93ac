//! The viewers of the page, and the frames of events that they get.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tollgate::clock::{Clock, SystemClock};
use tollgate::observe::{Event, Fingerprint, Observer};

use crate::page::history::{History, Judged};
use crate::page::record::{self, Seen};
use crate::page::viewer::{Frames, Viewer, viewer};
use crate::page::{comparison::Comparison, frame::Frame};

/// Viewers at a time.
const MOST_VIEWERS: usize = 16;
/// Viewers of one address, so that none takes all places.
const MOST_OF_ONE: usize = 4;
const FRAME: Duration = Duration::from_millis(100);
/// The longest time without a frame, in multiples of [`FRAME`]: a frame shows which viewers have gone away.
const LONGEST_SILENCE: u32 = 10;

/// An observer that records events while there are viewers, and keeps requests for some time after. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Feed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Whether there are viewers, or were in the last two hours. Otherwise an event costs only this look.
    is_recording: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    viewers: Vec<Viewer>,
    /// What is recorded while there are viewers.
    watched: Option<Watched>,
    is_closed: bool,
}

#[derive(Default)]
struct Watched {
    frame: Frame,
    comparison: Comparison,
}

impl Feed {
    /// A new viewer's frames, or why there are none.
    pub(super) fn join(&self, visitor: Fingerprint) -> Result<Frames, &'static str> {
        let mut state = self.state();
        if state.is_closed {
            return Err("The server ends.\n");
        }
        // Those that have gone away are noticed here, or with their next frame.
        state.viewers.retain(|viewer| !viewer.has_gone());
        if state.viewers.iter().filter(|viewer| viewer.visitor == visitor).count() >= MOST_OF_ONE {
            return Err("Four pages of your address watch already. Close one, or try again later.\n");
        }
        if state.viewers.len() >= MOST_VIEWERS {
            return Err("As many viewers as allowed watch already. Try again later.\n");
        }
        let (viewer, frames) = viewer(visitor);
        state.viewers.push(viewer);
        if state.watched.is_none() {
            state.watched = Some(Watched::default());
            if !self.0.is_recording.swap(true, Ordering::Relaxed) {
                state.history = History::from_now();
            }
            state.history.keep();
            tokio::spawn(self.clone().send_frames());
        }
        Ok(frames)
    }

    /// The requests that the policy of this name has judged.
    pub(super) fn judged_by(&self, policy: &str) -> Judged {
        self.state().history.judged_by(policy)
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
            let State { viewers, watched, history, .. } = &mut *state;
            let Some(Watched { frame, .. }) = watched else { return };
            silence += 1;
            if !frame.is_empty() || silence >= LONGEST_SILENCE {
                silence = 0;
                let frame = frame.take();
                viewers.retain(|viewer| viewer.send(&frame));
            }
            if viewers.is_empty() {
                *watched = None;
                history.end_after(SystemClock.now_us());
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Feed {
    fn on_event(&self, event: &Event<'_>) {
        if !self.0.is_recording.load(Ordering::Relaxed) || !record::is_shown(event) {
            return;
        }
        let keys: Vec<_> = event.charges().map(|(key, ..)| Fingerprint::from(key)).collect();
        let mut state = self.state();
        let State { history, watched, .. } = &mut *state;
        let at_us = history.next_time();
        if history.has_ended(at_us) {
            self.0.is_recording.store(false, Ordering::Relaxed);
            *history = History::default();
            return;
        }
        history.record(at_us, event, &keys);
        if let Some(Watched { frame, comparison }) = watched {
            // The comparison judges every request, also those that a frame leaves out.
            let beside = comparison.judge(event, &keys);
            frame.add(event, &Seen { at_us, keys: &keys, beside: &beside });
        }
    }
}
