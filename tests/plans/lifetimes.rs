//! How long a plan is used: its TTL, the time after it, and what replaces a plan at once.

use std::{convert::Infallible, time::Duration};

use tokio::time::sleep;
use tollgate::{Check, Key, Limiter, MemoryStore, clock::TokioClock, plans::Plans};

use super::{Answer, DEFAULT, Events, SECOND, Source, limit, observed, plan, settle};
use crate::support::per_minute;

#[tokio::test(start_paused = true)]
async fn an_upgrade_applies_after_the_ttl_and_not_earlier() {
    let source = Source::new(plan(10));
    let plans = source.plans();
    assert_eq!(limit(&plans, "k"), DEFAULT);
    settle().await;
    source.answers(plan(1_000));
    sleep(SECOND * 59).await;
    assert_eq!((limit(&plans, "k"), source.asked()), (10, 1));
    sleep(SECOND).await;
    assert_eq!(limit(&plans, "k"), 10, "the old plan, while the new one is looked up");
    settle().await;
    assert_eq!((limit(&plans, "k"), source.asked()), (1_000, 2));
}

#[tokio::test(start_paused = true)]
async fn an_old_plan_is_used_while_it_is_looked_up_once() {
    let (source, events) = (Source::new(plan(10)), Events::default());
    let plans = observed(source.plans(), events.clone());
    limit(&plans, "k");
    settle().await;
    sleep(SECOND * 100).await;
    source.answers(Answer::After(SECOND * 2, 20));
    for _ in 0..100 {
        assert_eq!(limit(&plans, "k"), 10);
        settle().await;
    }
    assert_eq!(source.asked(), 2);
    assert_eq!(events.fallbacks()[1..], [("unanswered", true); 100]);
    sleep(SECOND * 3).await;
    assert_eq!(limit(&plans, "k"), 20);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_too_old_is_not_used() {
    let source = Source::new(plan(10));
    let plans = source.plans().with_stale_while_revalidate(SECOND * 40);
    for key in ["in time", "late"] {
        limit(&plans, key);
    }
    settle().await;
    source.answers(Answer::Never);
    sleep(SECOND * 99).await;
    assert_eq!(limit(&plans, "in time"), 10);
    sleep(SECOND).await;
    assert_eq!((limit(&plans, "in time"), limit(&plans, "late")), (DEFAULT, DEFAULT));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_source_leaves_the_last_plan_in_force_for_its_stale_time() {
    let source = Source::new(plan(10));
    let plans = source.plans();
    limit(&plans, "k");
    settle().await;
    source.answers(Answer::Error);
    // One minute of TTL, and one hour after it.
    for minute in 0..61 {
        assert_eq!(limit(&plans, "k"), 10, "after {minute} minutes");
        sleep(SECOND * 60).await;
    }
    assert_eq!(limit(&plans, "k"), DEFAULT);
    // The first look-up, and one in each minute of the outage.
    assert_eq!(source.asked(), 61);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_plan_is_looked_up_by_the_next_request() {
    let source = Source::new(plan(10));
    let plans = source.plans();
    limit(&plans, "k");
    settle().await;
    source.answers(plan(20));
    plans.forget("k");
    assert_eq!(limit(&plans, "k"), DEFAULT);
    settle().await;
    assert_eq!((limit(&plans, "k"), source.asked()), (20, 2));
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_a_look_up_that_began_before_forget_or_insert_is_ignored() {
    let source = Source::new(Answer::After(SECOND, 10));
    let plans = source.plans();
    limit(&plans, "forgotten");
    limit(&plans, "inserted");
    settle().await;
    source.answers(plan(20));
    plans.forget("forgotten");
    plans.insert("inserted", per_minute("p", 30)).unwrap();
    limit(&plans, "forgotten");
    sleep(SECOND * 2).await;
    assert_eq!((limit(&plans, "forgotten"), limit(&plans, "inserted")), (20, 30));
    assert_eq!(source.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_inserted_plan_needs_no_look_up_until_its_ttl() {
    let source = Source::new(plan(20));
    let plans = source.plans();
    plans.insert("k", [per_minute("p", 30), per_minute("q", 5)]).unwrap();
    sleep(SECOND * 59).await;
    assert_eq!((plans.get("k").len(), source.asked()), (2, 0));
    sleep(SECOND).await;
    limit(&plans, "k");
    settle().await;
    assert_eq!(limit(&plans, "k"), 20);
}

#[tokio::test(start_paused = true)]
async fn clones_share_their_plans() {
    let source = Source::new(plan(10));
    let plans = source.plans();
    let clone = plans.clone().with_stale_while_revalidate(Duration::ZERO);
    limit(&plans, "k");
    settle().await;
    assert_eq!((limit(&clone, "k"), source.asked()), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_job_is_charged_under_all_policies_of_its_plan() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
    let closure = |key: Key| async move {
        assert_eq!(key, Key::from("job"));
        Ok::<_, Infallible>([per_minute("p", 3), per_minute("q", 5)])
    };
    let plans = Plans::new(closure, per_minute("p", 1)).unwrap();
    plans.get("job");
    settle().await;
    let check: Check = plans.check("job", 2);
    let charged: Vec<_> = check.charges().iter().map(|charge| (charge.policy.name(), charge.cost)).collect();
    assert_eq!(charged, [("p", 2), ("q", 2)]);
    assert!(limiter.check_all(check).await.unwrap().is_allowed());
    assert!(!limiter.check_all(plans.check("job", 2)).await.unwrap().is_allowed());
}
