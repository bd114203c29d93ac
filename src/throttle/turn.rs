//! The turns of one call: it waits until it is charged, and the upstream asks for no pause.

use std::task::{Context, Poll, ready};
use std::{future::Future, mem, pin::Pin, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::settings::{Costs, Settings};
use super::{response::HeldCall, throttled::Throttled};
use crate::runtime::{deadline::Deadline, drivers::Driver};
use crate::{decision::Decision, key::Key};

/// The turns of a call: one, unless its charge is too old when the inner service has a place for the call.
pub(super) struct Turns {
    settings: Arc<Settings>,
    key: Key,
    costs: Costs,
    /// When the call was first polled.
    started: Option<Instant>,
    state: State,
}

enum State {
    /// Waits for a turn.
    Waiting(Turn),
    /// The turn has come, and the call is charged.
    Charged {
        at: Instant,
        held: Option<HeldCall>,
        /// The end of the longest wait, if the inner service had no place at once.
        late: Option<Pin<Box<Deadline>>>,
    },
    /// Not polled yet, or ended.
    Idle,
}

type Turn = Pin<Box<dyn Future<Output = Result<(Instant, Option<HeldCall>), Throttled>> + Send>>;

/// The end of the wait for a place of the inner service.
pub(super) enum Waited {
    /// The call is made now. It may hold something until it has ended.
    InTime(Option<HeldCall>),
    /// The call takes another turn.
    TooLong,
}

impl Turns {
    pub(super) fn new(settings: Arc<Settings>, key: Key, costs: Costs) -> Self {
        Self { settings, key, costs, started: None, state: State::Idle }
    }

    /// Waits for a turn, if the call has none.
    pub(super) fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Throttled>> {
        if let State::Idle = self.state {
            let started = *self.started.get_or_insert_with(Instant::now);
            let turn = turn(Arc::clone(&self.settings), self.key.clone(), self.costs.clone(), started);
            self.state = State::Waiting(Box::pin(turn));
        }
        if let State::Waiting(turn) = &mut self.state {
            let waited = self.started.map_or(Duration::ZERO, |started| started.elapsed());
            let (at, held) = ready!(turn.as_mut().poll(cx)).map_err(|throttled| throttled.after(waited))?;
            self.state = State::Charged { at, held, late: None };
        }
        Poll::Ready(Ok(()))
    }

    /// Resolves when the call has waited for a place of the inner service for as long as it may.
    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Throttled> {
        let max_wait = self.settings.max_wait;
        if let State::Charged { late, .. } = &mut self.state {
            let left = max_wait.saturating_sub(self.started.map_or(Duration::ZERO, |started| started.elapsed()));
            if late.is_none() {
                *late = Deadline::after(left).map(Box::pin);
            }
            if let Some(late) = late {
                return late.as_mut().poll(cx).map(|()| Throttled::no_place(max_wait));
            }
        }
        Poll::Pending
    }

    /// Ends the wait for a place of the inner service. If the charge is so old that the upstream counts the call in
    /// another window, or if it has asked for a pause meanwhile, the call takes another turn with a charge of its own.
    /// A charge becomes old while the service has no place, and while nothing polls the call whose turn has come.
    pub(super) fn end(&mut self) -> Waited {
        let State::Charged { at, held, late } = mem::replace(&mut self.state, State::Idle) else {
            return Waited::InTime(None);
        };
        let age = at.elapsed();
        let is_over = self.settings.is_over(&self.costs, age, held.is_some());
        if (late.is_some() || age > JUST_CHARGED) && (is_over || self.settings.paused(&self.key).is_some()) {
            if let Some(held) = held {
                held.release();
            }
            return Waited::TooLong;
        }
        Waited::InTime(held)
    }
}

/// A call that was charged so recently is made however short the windows are, because another turn would take as long.
const JUST_CHARGED: Duration = Duration::from_millis(50);

/// Waits until a call of these costs for `key` may be made, and charges it. The wait counts from `started`. Returns the
/// time of the charge, and what the call holds.
///
/// # Errors
///
/// [`Throttled`] as soon as it is certain that the call would wait for longer than it may.
async fn turn(
    settings: Arc<Settings>,
    key: Key,
    costs: Costs,
    started: Instant,
) -> Result<(Instant, Option<HeldCall>), Throttled> {
    let max_wait = settings.max_wait;
    settings.validate().map_err(|mistake| Throttled::misconfigured(mistake, max_wait))?;
    settings.check(&costs).map_err(|error| Throttled::too_large(error, max_wait))?;
    let is_delayed = settings.is_delayed(&costs);
    let left = || max_wait.saturating_sub(started.elapsed());
    loop {
        match settings.acquire(&key, &costs, left()).await {
            Ok((decision, ..)) if !decision.is_allowed() => {
                return Err(Throttled::denied(decision, settings.paused(&key), max_wait));
            }
            // If a pause has begun while the store was asked, the call takes another turn, with a charge of its own:
            // the upstream counts the call after the pause, and the first charge may have left the window by then.
            Ok((_, held, charged)) if settings.paused(&key).is_none() => return Ok((charged, held)),
            // Shadow policies make no call wait, so only pauses keep the call back.
            Ok((_, held, charged)) if !is_delayed => {
                return outlast_pauses(&settings, &key, left).await.map(|()| (charged, held));
            }
            Ok((_, held, _)) => {
                if let Some(held) = held {
                    held.release();
                }
            }
            Err(error) if !settings.failure.resolve::<Decision>(Err(error.clone())).is_allowed() => {
                return Err(Throttled::without_verdict(error, settings.paused(&key), max_wait));
            }
            // Open: no queue has kept the call back, so only pauses do.
            Err(_) => return outlast_pauses(&settings, &key, left).await.map(|()| (Instant::now(), None)),
        }
    }
}

/// The time between two looks at a pause, which a reset may have ended.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Waits until the upstream asks for no pause.
async fn outlast_pauses(settings: &Settings, key: &Key, left: impl Fn() -> Duration) -> Result<(), Throttled> {
    while let Some(pause) = settings.paused(key) {
        if pause > left() {
            return Err(Throttled::paused(pause, settings.max_wait));
        }
        if !Driver::Timers.is_there() {
            return Err(Throttled::paused_without_timers(pause, settings.max_wait));
        }
        sleep(pause.min(LOOK_AGAIN)).await;
    }
    Ok(())
}
