//! Runtimes: none, one that ends, one that is blocked, and one without timers.

use tokio::runtime::{Builder, Runtime};
use tollgate::{ManualClock, plans::Plans};

use super::{Answer, DEFAULT, Events, SECOND, Source, limit, observed, plan, settle};
use crate::support::per_minute;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn plans(source: &Source, events: &Events) -> (Plans, ManualClock) {
    let clock = ManualClock::default();
    let plans = Plans::new(source.clone(), per_minute("p", DEFAULT)).unwrap();
    (observed(plans.with_clock(clock.clone()), events.clone()), clock)
}

#[test]
fn without_a_runtime_the_default_plan_holds() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let (plans, _) = plans(&source, &events);
    for _ in 0..3 {
        assert_eq!(limit(&plans, "k"), DEFAULT);
    }
    assert_eq!((source.asked(), events.fallbacks()), (0, vec![("no_runtime", false); 3]));
    // The key is not marked, so a request in a runtime looks it up.
    runtime().block_on(async {
        limit(&plans, "k");
        settle().await;
        assert_eq!(limit(&plans, "k"), 50);
    });
}

#[test]
fn a_given_runtime_looks_plans_up_for_requests_outside_of_it() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let runtime = runtime();
    let plans = plans(&source, &events).0.with_runtime(runtime.handle().clone());
    assert_eq!(limit(&plans, "k"), DEFAULT);
    runtime.block_on(settle());
    assert_eq!(limit(&plans, "k"), 50);
}

#[test]
fn a_runtime_that_ends_during_a_look_up_does_not_block_its_key() {
    let (source, events) = (Source::new(Answer::Never), Events::default());
    let (plans, _) = plans(&source, &events);
    let first = runtime();
    first.block_on(async {
        limit(&plans, "started");
        settle().await;
        limit(&plans, "never polled");
    });
    drop(first);
    assert_eq!(events.lookups(), ["cancelled"; 2]);
    source.answers(plan(50));
    runtime().block_on(async {
        for key in ["started", "never polled"] {
            limit(&plans, key);
            settle().await;
            assert_eq!(limit(&plans, key), 50);
        }
    });
}

#[test]
fn a_runtime_that_has_ended_is_no_panic_and_no_deadlock() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let ended = runtime();
    let plans = plans(&source, &events).0.with_runtime(ended.handle().clone());
    drop(ended);
    for _ in 0..3 {
        assert_eq!(limit(&plans, "k"), DEFAULT);
    }
    assert_eq!(events.lookups(), ["cancelled"; 3]);
}

#[test]
fn a_runtime_that_is_blocked_holds_its_key_for_a_ttl_at_most() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let (plans, clock) = plans(&source, &events);
    let plans = plans.with_max_lookups(1);
    // A runtime that nothing drives stands for one that a handler blocks.
    let blocked = runtime();
    let context = blocked.enter();
    limit(&plans, "k");
    drop(context);
    runtime().block_on(async {
        clock.advance(SECOND * 59);
        limit(&plans, "k");
        settle().await;
        assert_eq!((limit(&plans, "k"), source.asked()), (DEFAULT, 0));
        clock.advance(SECOND);
        limit(&plans, "k");
        settle().await;
        assert_eq!((limit(&plans, "k"), source.asked()), (50, 1));
    });
    // The look-up that was replaced changes nothing.
    source.answers(plan(7));
    blocked.block_on(settle());
    assert_eq!(limit(&plans, "k"), 50);
}

#[test]
fn look_ups_of_a_blocked_runtime_free_their_places_for_other_keys() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let (plans, clock) = plans(&source, &events);
    let plans = plans.with_max_lookups(2);
    let blocked = runtime();
    let context = blocked.enter();
    limit(&plans, "a");
    limit(&plans, "b");
    drop(context);
    runtime().block_on(async {
        limit(&plans, "c");
        settle().await;
        assert_eq!((limit(&plans, "c"), source.asked()), (DEFAULT, 0));
        clock.advance(SECOND * 60);
        limit(&plans, "c");
        settle().await;
        assert_eq!((limit(&plans, "c"), source.asked()), (50, 1));
    });
}

#[test]
fn a_runtime_without_timers_looks_plans_up() {
    let (source, events) = (Source::new(plan(50)), Events::default());
    let (plans, clock) = plans(&source, &events);
    Builder::new_current_thread().build().unwrap().block_on(async {
        limit(&plans, "k");
        settle().await;
        assert_eq!(limit(&plans, "k"), 50);
        // Nothing ends a look-up that hangs, but it is replaced.
        source.answers(Answer::Never);
        limit(&plans, "hangs");
        settle().await;
        source.answers(plan(60));
        clock.advance(SECOND * 60);
        limit(&plans, "hangs");
        settle().await;
        assert_eq!(limit(&plans, "hangs"), 60);
    });
}
