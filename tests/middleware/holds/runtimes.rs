//! Runtimes that end right after a response, before what a request has held is given back.

use std::sync::{Arc, Mutex, mpsc};
use std::{collections::VecDeque, convert::Infallible, fmt, thread, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use tokio::{runtime, sync::oneshot, time::sleep};
use tollgate::observe::{Event, Observer};
use tollgate::store::{Answer, Charge, Check, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Key, Limiter, MemoryStore, Policy, RateLimitLayer, middleware::Bill, policy::HoldSettings};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{CLIENT, Frames, at_end, one_client, request};

const MS: Duration = Duration::from_millis(1);

/// A memory store behind a network: calls take effect in the order in which they were sent, after a millisecond, and
/// their answers arrive after another.
#[derive(Clone, Default)]
struct Remote {
    memory: MemoryStore,
    /// The calls on their way.
    line: Arc<Mutex<VecDeque<Arrival>>>,
}

type Arrival = Box<dyn FnOnce() + Send>;

impl Remote {
    fn send<T: Send + 'static>(&self, call: impl FnOnce(&MemoryStore) -> Answer<T> + Send + 'static) -> Answer<T> {
        let (memory, line) = (self.memory.clone(), Arc::clone(&self.line));
        Answer::pending(async move {
            let (sender, answer) = oneshot::channel();
            let arrives = move || drop(sender.send(call(&memory)));
            line.lock().unwrap().push_back(Box::new(arrives) as Arrival);
            sleep(MS).await;
            while answer.is_empty() {
                let first = line.lock().unwrap().pop_front();
                first.into_iter().for_each(|arrives| arrives());
            }
            sleep(MS).await;
            // The memory store answers at once.
            match answer.await.unwrap() {
                Answer::Ready(result) => result,
                Answer::Pending(pending) => pending.await,
            }
        })
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

impl Store for Remote {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let check = check.clone();
        self.send(move |memory| memory.check(&check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let hold = hold.clone();
        self.send(move |memory| memory.change_hold(&hold, change))
    }
}

/// The next request in another runtime sends the end of the slot before its own check.
#[test]
fn law_15_a_slot_whose_runtime_has_ended_is_free_with_the_next_request() {
    let slot = Policy::concurrent("uploads", 1).unwrap();
    let limit = RateLimitLayer::new(Limiter::new(Remote::default()), slot, one_client())
        .with_settlement(at_end)
        .with_held_body();
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
    assert_eq!(statuses, [200; 12]);
}

/// Counts the ends of holds.
#[derive(Clone, Debug, Default)]
struct Ends(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Ends {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "hold_end" {
            self.0.lock().unwrap().push(event.outcome());
        }
    }
}

fn current_thread() -> runtime::Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// What ends last: the response, the guard of work, or the bill of an upgraded connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    Body,
    Guard,
    Upgrade,
}

/// In a thread without a runtime, after the runtime of the request has ended.
#[test]
fn law_15_what_ends_outside_of_any_runtime_gives_its_slot_back_once_with_the_next_use() {
    for last in [Last::Body, Last::Guard, Last::Upgrade] {
        let ends = Ends::default();
        let (memory, policy) = (MemoryStore::new(), Policy::concurrent("one", 1).unwrap());
        let limiter = Limiter::new(Remote { memory: memory.clone(), ..Remote::default() }).with_observer(ends.clone());
        let (sender, kept) = mpsc::channel();
        let answers = move |request: Request<Body>| {
            let bill = request.extensions().get::<Bill>().unwrap().clone();
            let guard = (last == Last::Guard).then(|| bill.guard());
            sender.send((guard, (last == Last::Upgrade).then_some(bill))).unwrap();
            let status = if last == Last::Upgrade { 101 } else { 200 };
            let response = Response::builder().status(status).body(Frames::of(["a"]));
            async move { Ok::<_, Infallible>(response.unwrap()) }
        };
        let limit =
            RateLimitLayer::new(limiter.clone(), policy.clone(), one_client()).with_settlement(at_end).with_held_body();
        let service = ServiceBuilder::new().layer(limit).service(service_fn(answers));
        let first = current_thread();
        let mut response = Some(first.block_on(service.oneshot(request())).unwrap());
        let kept = kept.recv().unwrap();
        if last != Last::Body {
            response = None;
        }
        drop(first);
        let left = || {
            let peek = Limiter::new(memory.clone()).peek(CLIENT, &policy);
            current_thread().block_on(peek).unwrap().available()
        };
        assert_eq!(left(), Some(0), "{last:?}");
        thread::spawn(move || drop((response, kept))).join().unwrap();
        current_thread().block_on(async {
            let _ = limiter.peek("other", &policy).await.unwrap();
            for _ in 0..1_000 {
                if !ends.0.lock().unwrap().is_empty() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        assert_eq!(left(), Some(1), "{last:?}");
        assert_eq!(*ends.0.lock().unwrap(), ["released"], "{last:?}");
    }
}

/// The longest age passes in a runtime that uses the limiter, and not in that of the request.
#[test]
fn law_15_a_hold_whose_runtime_has_ended_gets_no_older_than_the_longest_age() {
    grows_no_older(true);
}

/// Nothing drives the runtime of the request, and another one holds a slot of its own.
#[test]
fn law_15_a_hold_whose_runtime_stands_still_gets_no_older_than_the_longest_age() {
    grows_no_older(false);
}

fn grows_no_older(has_ended: bool) {
    let ends = Ends::default();
    let holds = HoldSettings::new().with_longest(Duration::from_millis(300));
    let (memory, policy) = (MemoryStore::new(), Policy::concurrent("one", 1).unwrap().with_holds(holds));
    let limiter = Limiter::new(Remote { memory: memory.clone(), ..Remote::default() }).with_observer(ends.clone());
    let answers = |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]).then_stays_open())) };
    let limit =
        RateLimitLayer::new(limiter.clone(), policy.clone(), one_client()).with_settlement(at_end).with_held_body();
    let service = ServiceBuilder::new().layer(limit).service(service_fn(answers));
    let first = current_thread();
    let response = first.block_on(service.oneshot(request())).unwrap();
    let first = Some(first).filter(|_| !has_ended);
    let second = current_thread();
    let own = second.block_on(async {
        let _ = limiter.peek("other", &policy).await.unwrap();
        let own = match has_ended {
            true => None,
            false => limiter.hold("other", &policy, 1).await.unwrap().into_result().ok(),
        };
        for _ in 0..1_000 {
            if !ends.0.lock().unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        own
    });
    assert_eq!(*ends.0.lock().unwrap(), ["too_long"]);
    drop(response);
    assert_eq!(ends.0.lock().unwrap().len(), 1);
    drop((own, first));
}
