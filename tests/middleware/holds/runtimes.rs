//! Runtimes that end right after a response, before what a request has held is given back.

use std::{convert::Infallible, time::Duration};

use http::Response;
use tokio::runtime;
use tollgate::{
    Error, Key, Limiter, MemoryStore, Policy, RateLimitLayer,
    store::{Answer, Check, HoldChange, OpenHold, Settlement, Store, Verdict},
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, at_end, one_client, request};

/// A memory store behind a network: each call takes effect after a millisecond, and its answer arrives after another.
#[derive(Clone, Debug, Default)]
struct Remote(MemoryStore);

/// The memory store answers at once.
async fn over_the_network<T>(call: impl FnOnce() -> Answer<T>) -> Result<T, Error> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let answer = call();
    tokio::time::sleep(Duration::from_millis(1)).await;
    match answer {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => pending.await,
    }
}

impl Store for Remote {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (memory, check) = (self.0.clone(), check.clone());
        Answer::pending(over_the_network(move || memory.check(&check)))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &OpenHold, change: HoldChange) -> Answer<Settlement> {
        let (memory, hold) = (self.0.clone(), hold.clone());
        Answer::pending(over_the_network(move || memory.change_hold(&hold, change)))
    }
}

/// The next request in another runtime sends the end of the slot together with its own check.
#[test]
fn law_15_a_slot_whose_runtime_has_ended_is_free_with_the_next_request() {
    let slot = Policy::concurrent("uploads", 1).unwrap();
    let limit = RateLimitLayer::new(Limiter::new(Remote::default()), slot, one_client()).settle(at_end).unwrap();
    let answers = |_| async { Ok::<_, Infallible>(Response::new(Frames::of(["done"]))) };
    let service = ServiceBuilder::new().layer(limit).service(service_fn(answers));
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let response = runtime.block_on(service.clone().oneshot(request())).unwrap();
        statuses.push(response.status().as_u16());
        drop(runtime);
        // The body ends without a runtime that runs.
        drop(response);
    }
    assert!(statuses.windows(2).all(|pair| pair.contains(&200)), "{statuses:?}");
}
