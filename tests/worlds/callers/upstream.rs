//! Callers of another service, whose layer makes them wait for their turn. Now and then the service asks for a pause.

use std::sync::{Arc, Mutex, PoisonError};
use std::{convert::Infallible, error::Error as _};

use http::{Request, Response, StatusCode};
use tollgate::{Error, ThrottleLayer, throttle::Throttled};
use tower::{Layer, ServiceExt, service_fn};

use super::{Caller, ask::Ask, impatient::Patience};
use crate::keys::{KEYS, key_name};
use crate::plan::mode::{MAX_WAIT, Mode};
use crate::{changes, place::Place, time::ms};

/// How often the service asks for a pause, in percent, and the pauses, in milliseconds.
const PAUSES: u64 = 4;
const SHORTEST_PAUSE: u64 = 50;
const LONGEST_PAUSE: u64 = 400;
/// The longest time in which it answers, in milliseconds.
const LATENCY: u64 = 10;

/// A call of the service, and what it will answer.
#[derive(Clone)]
struct Visit {
    /// Taken when the service is reached.
    ask: Arc<Mutex<Option<Ask>>>,
    place: Place,
    key: u64,
    cost: u64,
    latency: u64,
    pause: Option<u64>,
}

impl Visit {
    fn take(&self) -> Option<Ask> {
        self.ask.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn answer(self) -> Result<Response<()>, Infallible> {
        if let Some(ask) = self.take() {
            ask.has_reached(self.cost);
        }
        tokio::time::sleep(ms(self.latency)).await;
        let mut response = Response::new(());
        if let Some(pause) = self.pause {
            changes::ask_for_a_pause(Mode::Upstream, self.key, self.place, pause);
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after-ms", pause.into());
        }
        Ok(response)
    }
}

impl Caller {
    pub(super) async fn call_upstream(&mut self) {
        let (key, cost) = (self.rng.below(KEYS), self.draw_cost());
        let (patience, latency) = (Patience::within(MAX_WAIT, &mut self.rng), self.rng.below(LATENCY));
        let asks_for_a_pause = self.rng.chance(PAUSES);
        let pause = SHORTEST_PAUSE + self.rng.below(LONGEST_PAUSE - SHORTEST_PAUSE);
        let throttle = ThrottleLayer::new(self.limiter(), self.mode.policy(), key_name(self.mode, key));
        let throttle = throttle.with_cost(cost).with_max_wait(ms(MAX_WAIT)).with_shared_pauses();
        let ask = Arc::new(Mutex::new(Some(Ask::start(self.mode, self.place, key, cost))));
        let pause = Some(pause).filter(|_| asks_for_a_pause);
        let visit = Visit { ask, place: self.place, key, cost, latency, pause };
        let reached = visit.clone();
        let client = throttle.layer(service_fn(move |_: Request<()>| reached.clone().answer()));
        let Some(Err(error)) = patience.wait(client.oneshot(Request::new(()))).await else { return };
        let (Some(ask), Some(throttled)) = (visit.take(), error.downcast_ref::<Throttled>()) else { return };
        match throttled.source().and_then(|source| source.downcast_ref::<Error>()) {
            Some(error) => ask.fail(error),
            None => ask.refuse(throttled.retry_after()),
        }
    }
}
