//! Limits that are replaced while other threads use them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{collections::BTreeSet, thread};

use tollgate::observe::{Event, Observer};
use tollgate::{Decision, GlobalKey, Limiter, LiveLimits, MemoryStore, Route, limits::LimitsConfig};

use super::files::{limits, only};
use crate::support::app::{app, limiter};
use crate::support::{http::get, observed::other};

fn rate(limit: u64) -> LimitsConfig {
    only(&format!("rate = '{limit}/min'"))
}

/// Every set of limits has its own policy, cost and header style. A response that mixed two sets would show it.
#[test]
fn no_request_sees_half_of_two_configurations() {
    let set = |number: u64| {
        let style = ["draft-11", "x-ratelimit"][number as usize % 2];
        limits(&format!(
            "headers = '{style}'\npolicies.p{number}.rate = '4000000000/min'\n\
             default = {{ policies = ['p{number}'], costs = {{ p{number} = {} }} }}",
            number + 1
        ))
    };
    let sets: Vec<LimitsConfig> = (0..6).map(set).collect();
    let live = LiveLimits::new(sets[0].clone());
    let layer = live.layer(Limiter::new(MemoryStore::new()), GlobalKey).unwrap().with_decision_in_response(true);
    let (app, is_done) = (app(layer), AtomicBool::new(false));
    let seen = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        let mut replacing = Vec::new();
        for start in 0..2 {
            let (live, sets, seen, begin) = (&live, &sets, &seen, Instant::now());
            replacing.push(scope.spawn(move || {
                // The machine may not have run the other threads yet.
                let is_unseen = || seen.lock().unwrap().len() < 2 && begin.elapsed() < Duration::from_secs(60);
                let numbers = (0..).take_while(|number| *number < 2_000 || is_unseen());
                numbers.map(|number| live.replace(sets[(start + number) % sets.len()].clone()).unwrap()).count()
            }));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                while !is_done.load(Ordering::Relaxed) {
                    let reply = runtime.block_on(get(&app, "/"));
                    let decision: &Decision = reply.extensions.get().unwrap();
                    let name = decision.policies()[0].policy.name().to_owned();
                    let number: u64 = name.strip_prefix('p').unwrap().parse().unwrap();
                    assert_eq!(reply.header("ratelimit").is_some(), number.is_multiple_of(2), "{name}");
                    assert_eq!(reply.header("x-ratelimit-limit").is_some(), number % 2 == 1, "{name}");
                    seen.lock().unwrap().insert(number);
                }
            });
        }
        let replaced: Vec<_> = replacing.into_iter().map(|thread| thread.join()).collect();
        // The readers end although a replacement has failed.
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(live.version(), 1 + replaced.into_iter().map(Result::unwrap).sum::<usize>() as u64);
    });
    assert!(seen.into_inner().unwrap().len() > 1, "no change was seen");
}

#[tokio::test]
async fn two_layers_of_the_same_limits_follow_both() {
    let live = LiveLimits::new(rate(10));
    let [one, two] = [(); 2].map(|()| app(live.layer(limiter(), GlobalKey).unwrap()));
    live.replace(rate(20)).unwrap();
    for app in [&one, &two] {
        assert_eq!(get(app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=19;t=60"#));
    }
    drop(one);
    live.replace(rate(30)).unwrap();
    assert_eq!(get(&two, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=28;t=60"#));
}

/// Layers are derived and dropped while the limits are replaced, as a server does that builds a router per connection.
#[test]
fn layers_come_and_go_while_limits_are_replaced() {
    let live = LiveLimits::new(rate(10));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let deriving = (0..2).map(|_| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let layer = live.layer(limiter(), GlobalKey).unwrap();
                    drop(layer.clone().with_cost(2).route("/search", Route::new().cost(3)));
                    drop(layer.fail_closed());
                }
            })
        });
        let deriving: Vec<_> = deriving.collect();
        for number in 0..1_000 {
            live.replace(rate(10 + number % 5)).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
        deriving.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(live.version(), 1_001);
}

/// Replaces the limits when they have changed to a limit of 20.
#[derive(Clone, Default)]
struct Corrects(Arc<OnceLock<LiveLimits>>);

impl Observer for Corrects {
    fn on_event(&self, event: &Event<'_>) {
        if other(event, "limits_change").is_some() {
            let live = self.0.get().unwrap();
            if live.policy("p").unwrap().limit() == 20 {
                live.replace(rate(15)).unwrap();
            }
        }
    }
}

#[test]
fn an_observer_may_replace_the_limits() {
    let observer = Corrects::default();
    let live = LiveLimits::new(rate(10));
    let _layer = live.layer(limiter().with_observer(observer.clone()), GlobalKey).unwrap();
    observer.0.set(live.clone()).unwrap();
    live.replace(rate(20)).unwrap();
    assert_eq!((live.policy("p").unwrap().limit(), live.version()), (15, 3));
}

struct Panics;

impl Observer for Panics {
    fn on_event(&self, event: &Event<'_>) {
        if other(event, "limits_change").is_some() {
            panic!("an observer panicked");
        }
    }
}

#[tokio::test]
async fn law_16_limits_are_replaced_although_an_observer_panics() {
    let live = LiveLimits::new(rate(10));
    let app = app(live.layer(limiter().with_observer(Panics), GlobalKey).unwrap());
    for limit in [20, 30] {
        live.replace(rate(limit)).unwrap();
        let policy = format!(r#""p";q={limit};w=60"#);
        assert_eq!(get(&app, "/").await.header("ratelimit-policy"), Some(policy));
    }
}
