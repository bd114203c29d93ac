//! What decisions say: denials are the store's, nothing of a process's own is wasted, and other kinds of checks.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use metrics::set_default_local_recorder;
use tollgate::observe::{Event, Metrics, Observer, Tracing};
use tollgate::{Algorithm, Check, MemoryStore, store::SettleAnswer};
use tracing::Level;

use super::*;
use crate::support::scrape::{assert_shows, recorder};
use crate::support::{log::Log, random::Random};

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];

#[tokio::test(start_paused = true)]
async fn law_2_a_process_alone_is_admitted_the_whole_limit() {
    for algorithm in ALGORITHMS {
        for limit in [5, 30, 1_000, 20_000] {
            let (remote, _) = Remote::new(MS);
            let policy = Policy::per_minute("p", limit).unwrap().with_algorithm(algorithm).with_lease(limit);
            let start = tokio::time::Instant::now();
            let got = load(&remote.limiter(), &policy, limit / 20 + 1, 25).await;
            // When the limit is nearly spent, no check waits for one small block after another.
            assert!(start.elapsed() <= 35 * MS, "{policy:?}: {:?}", start.elapsed());
            // What a bucket gains during the load.
            let is_bucket = algorithm == Algorithm::TokenBucket;
            let gain = if is_bucket { limit * start.elapsed().as_millis() as u64 / 60_000 } else { 0 };
            assert!(got.admitted >= limit && got.admitted <= limit + gain, "{policy:?}, {got:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn law_2_a_large_cost_gets_what_the_blocks_of_its_process_hold() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(10_000, 5_000);
    let limiter = hot(&remote, &policy).await;
    let decision = check(&limiter, &policy, 9_800).await;
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!((decision.source(), decision.available()), (Source::Store, Some(0)));
    let denial = check(&limiter, &policy, 1).await;
    assert!(!denial.is_allowed() && denial.retry_after().is_some());
    let several = Check::new(KEY, &policy, 1).and(KEY, &Policy::per_day("daily", 5).unwrap(), 1);
    assert!(!limiter.check_all(several).await.unwrap().is_allowed());
}

/// As after a change of the limits, while the blocks of before are open.
#[tokio::test(start_paused = true)]
async fn law_2_a_check_under_another_lease_of_the_same_count_gets_what_the_blocks_hold() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(10_000, 5_000);
    let limiter = hot(&remote, &policy).await;
    // Until the checks of before, which went to the store, say nothing any more.
    for _ in 0..30 {
        assert_eq!(check(&limiter, &policy, 1).await.source(), Source::Lease);
        sleep(100 * MS).await;
    }
    let decision = check(&limiter, &per_minute(10_000, 4_000), 9_770).await;
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!(decision.available(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn law_3_a_check_of_several_charges_gets_what_the_blocks_hold_or_charges_nothing() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(10_000, 5_000);
    let limiter = hot(&remote, &policy).await;
    let daily = Policy::per_day("daily", 5).unwrap();
    let both = |cost, days| Check::new(KEY, &policy, cost).and(KEY, &daily, days);
    assert!(limiter.check_all(both(9_700, 4)).await.unwrap().is_allowed());
    assert!(!limiter.check_all(both(100, 2)).await.unwrap().is_allowed(), "a day has five");
    let decision = limiter.check_all(both(100, 1)).await.unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    assert_eq!(decision.available(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn law_4_a_check_of_a_leased_and_a_sharded_policy_gets_what_a_peek_calls_available() {
    for latency in [0, 1] {
        let (remote, _) = Remote::new(latency * MS);
        let policy = per_minute(10_000, 5_000);
        let limiter = hot(&remote, &policy).await;
        let sharded = Policy::per_day("daily", 100).unwrap().with_shards(4);
        let available = limiter.peek(KEY, &policy).await.unwrap().available().unwrap();
        let both = Check::new(KEY, &policy, available).and(KEY, &sharded, 1);
        let decision = limiter.check_all(both).await.unwrap();
        assert!(decision.is_allowed(), "{available} are available: {decision:?}");
        let peek = limiter.peek(KEY, &policy).await.unwrap();
        assert_eq!(peek.available(), Some(0));
    }
}

/// A cluster may have made the hold before the node of the leased count denies the check. It releases the hold by its
/// name, which a second call would use again.
#[tokio::test(start_paused = true)]
async fn law_1_a_check_of_several_nodes_that_holds_units_is_sent_once_and_the_next_one_gets_what_the_blocks_hold() {
    for (is_cluster, sent) in [(true, 1), (false, 2)] {
        let (remote, _) = Remote::new(MS);
        let remote = if is_cluster { remote.of_two_domains() } else { remote };
        let policy = per_minute(10_000, 5_000);
        let limiter = hot(&remote, &policy).await;
        // Until a block that may be on its way has come.
        sleep(20 * MS).await;
        let slots = Policy::concurrent("slots", 3).unwrap();
        let both = || Check::hold("other", &slots, 1).and(KEY, &policy, 9_800);
        let [_, before, _] = remote.calls();
        assert_eq!(limiter.hold_all(both()).await.unwrap().is_allowed(), !is_cluster);
        assert_eq!(remote.calls()[1], before + sent);
        // Until the blocks are settled.
        sleep(20 * MS).await;
        assert_eq!(limiter.hold_all(both()).await.unwrap().is_allowed(), is_cluster);
    }
}

#[tokio::test(start_paused = true)]
async fn law_9_a_check_that_has_charged_another_policy_is_not_sent_again_for_what_blocks_hold() {
    let (remote, _) = Remote::new(MS);
    let shadow = per_minute(100_000, 1_000).with_shadow(true);
    let limiter = hot(&remote, &shadow).await;
    let daily = Policy::per_day("daily", 5).unwrap();
    let both = Check::new(KEY, &shadow, 99_800).and(KEY, &daily, 1);
    let decision = limiter.check_all(both).await.unwrap();
    assert!(decision.is_allowed() && decision.would_deny(), "{decision:?}");
    assert_eq!(limiter.peek(KEY, &daily).await.unwrap().available(), Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_blocks_do_not_make_up_for_leaves_them_open() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    // Until a block that may be on its way has come.
    sleep(20 * MS).await;
    let [plain, holds, settlements] = remote.calls();
    assert!(!check(&limiter, &policy, 99_801).await.is_allowed());
    assert_eq!(remote.calls(), [plain + 1, holds, settlements]);
    assert_eq!(check(&limiter, &policy, 1).await.source(), Source::Lease);
}

#[tokio::test(start_paused = true)]
async fn holds_and_peeks_of_a_key_with_blocks_are_judged_by_the_store() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    let hold = limiter.hold(KEY, &policy, 10).await.unwrap().into_result().unwrap();
    assert_eq!(hold.decision().source(), Source::Store);
    assert_eq!(hold.settle(4).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(limiter.peek(KEY, &policy).await.unwrap().source(), Source::Store);
    limiter.close().await;
    assert_eq!(remote.limiter().peek(KEY, &policy).await.unwrap().available(), Some(100_000 - 204));
}

#[tokio::test(start_paused = true)]
async fn law_4_available_is_what_a_process_alone_can_spend() {
    let (remote, _) = Remote::new(Duration::ZERO);
    let limiter = remote.limiter();
    let policy = per_minute(100_000, 1_000);
    let (mut spent, mut from_blocks) = (0, 0);
    for _ in 0..50 {
        for _ in 0..50 {
            let decision = check(&limiter, &policy, 1).await;
            spent += 1;
            from_blocks += u64::from(decision.source() == Source::Lease);
            assert_eq!(decision.available(), Some(100_000 - spent), "{decision:?}");
            let peek = limiter.peek(KEY, &policy).await.unwrap();
            assert_eq!(peek.available(), Some(100_000 - spent), "{peek:?}");
        }
        sleep(MS).await;
    }
    assert!(from_blocks > 2_000, "{from_blocks}");
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_the_one_that_the_store_gives() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(500, 100);
    let limiter = remote.limiter();
    load(&limiter, &policy, 50, 20).await;
    let (own, other) = (remote.limiter(), limiter);
    let (one, two) = (check(&own, &policy, 1).await, check(&other, &policy, 1).await);
    assert!(!one.is_allowed() && !two.is_allowed());
    assert_eq!((one.source(), two.source()), (Source::Store, Source::Store));
    let difference = one.retry_after().unwrap() - two.retry_after().unwrap();
    assert!(difference <= 5 * MS, "{one:?}, {two:?}");
}

#[tokio::test(start_paused = true)]
async fn try_check_spends_from_an_open_block_and_gets_what_blocks_hold() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(tollgate::clock::TokioClock::new()));
    let policy = per_minute(10_000, 5_000);
    load(&limiter, &policy, 10, 20).await;
    assert_eq!(limiter.try_check(KEY, &policy, 1).unwrap().source(), Source::Lease);
    let decision = limiter.try_check(KEY, &policy, 9_799).unwrap();
    assert!(decision.is_allowed(), "{decision:?}");
    assert!(!limiter.try_check(KEY, &policy, 1).unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_key_share_its_blocks() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    let mut waiters = JoinSet::new();
    for _ in 0..500 {
        waiters.spawn(limiter.acquire(KEY, &policy, 1).within(SECOND));
    }
    let mut from_blocks = 0;
    while let Some(acquired) = waiters.join_next().await {
        let decision = acquired.unwrap().unwrap();
        assert!(decision.is_allowed());
        from_blocks += u64::from(decision.source() == Source::Lease);
    }
    assert!(from_blocks > 0);
    sleep(IDLE).await;
    assert_eq!(remote.limiter().peek(KEY, &policy).await.unwrap().available(), Some(100_000 - 700));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_policy_with_a_lease_refuses_nothing() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(1_000, 500).with_shadow(true);
    let limiter = remote.limiter();
    let (mut would_deny, mut from_blocks) = (0, 0);
    let mut checks = JoinSet::new();
    for _ in 0..50 {
        for _ in 0..50 {
            checks.spawn(limiter.check(KEY, &policy, 1));
        }
        sleep(MS).await;
    }
    while let Some(decision) = checks.join_next().await {
        let decision = decision.unwrap().unwrap();
        assert!(decision.is_allowed());
        would_deny += u64::from(decision.would_deny());
        from_blocks += u64::from(decision.source() == Source::Lease);
    }
    assert_eq!(would_deny, 1_500);
    assert!(from_blocks > 0);
}

#[tokio::test(start_paused = true)]
async fn checks_that_are_dropped_while_they_wait_for_a_block_charge_nothing() {
    let (remote, _) = Remote::new(6 * MS);
    let policy = per_minute(100_000, 20);
    let limiter = remote.limiter();
    let mut admitted = load(&limiter, &policy, 10, 40).await.admitted;
    let mut random = Random(5);
    let mut dropped = 0;
    for _ in 0..200 {
        for _ in 0..20 {
            let mut check = Box::pin(limiter.check(KEY, &policy, 1));
            // Its first poll spends a unit, or takes a place among those that wait.
            let first = poll_fn(|cx| Poll::Ready(check.as_mut().poll(cx))).await;
            match first {
                Poll::Ready(decision) => admitted += u64::from(decision.unwrap().is_allowed()),
                Poll::Pending => dropped += 1,
            }
        }
        sleep(MS * random.below(3) as u32).await;
    }
    assert!(dropped > 10, "{dropped}");
    sleep(IDLE).await;
    let left = remote.limiter().peek(KEY, &policy).await.unwrap().available().unwrap();
    assert_eq!(left, 100_000 - admitted, "{dropped} were dropped");
}

#[tokio::test(start_paused = true)]
async fn what_is_spent_from_blocks_is_no_fresh_budget_for_the_local_fallback() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(1_000, 500);
    let memory = MemoryStore::new().with_clock(tollgate::clock::TokioClock::new());
    let limiter = remote.limiter().with_local_fallback(memory, 1);
    let got = load(&limiter, &policy, 30, 20).await;
    assert!(got.admitted == 600 && got.from_blocks > 300, "{got:?}");
    remote.set_away(true);
    let mut admitted = got.admitted;
    for _ in 0..1_500 {
        let decision = limiter.check(KEY, &policy, 1).fail_local().await.unwrap();
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_gauge_shows_how_many_keys_have_a_lease() {
    let (remote, _) = Remote::new(MS);
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let (before, policy) = (remote.limiter(), per_minute(100_000, 1_000));
    let limiter = before.clone().with_observer(Metrics::new());
    let spend = async |limiter: &Limiter, key| {
        for _ in 0..50 {
            let _ = limiter.check(key, &policy, 1).await.unwrap();
        }
    };
    let shows = |number| assert_shows(&handle, &[&format!(r#"tollgate_leases{{policy="p"}} {number}"#)]);
    spend(&limiter, "one").await;
    shows(1);
    spend(&limiter, "two").await;
    spend(&limiter, "one").await;
    shows(2);
    // It is no key of the limiter that is observed, also when that one ends it.
    spend(&before, "three").await;
    shows(2);
    limiter.reset("two", &policy).await.unwrap();
    shows(1);
    sleep(IDLE).await;
    shows(0);
    spend(&limiter, "one").await;
    spend(&before, "three").await;
    shows(1);
    limiter.close().await;
    shows(0);
}

#[derive(Clone, Debug, Default)]
struct Counts(Arc<Mutex<(u64, u64, u64)>>);

impl Observer for Counts {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(decision) = event.decision() {
            let mut counts = self.0.lock().unwrap();
            counts.0 += 1;
            counts.1 += u64::from(decision.source() == Source::Lease);
            assert_eq!(event.outcome(), "allowed");
        }
        self.0.lock().unwrap().2 += u64::from(event.name() == "near_limit");
    }
}

#[tokio::test(start_paused = true)]
async fn observers_see_each_decision_and_a_key_near_its_limit_once() {
    let (remote, _) = Remote::new(MS);
    let counts = Counts::default();
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let limiter = remote.limiter().with_observer(counts.clone()).with_observer(Metrics::new());
    let policy = per_minute(2_000, 500);
    let got = load(&limiter, &policy, 38, 50).await;
    assert_eq!(got.admitted, 1_900);
    assert_eq!(*counts.0.lock().unwrap(), (1_900, got.from_blocks, 1));
    assert!(!handle.render().contains("tollgate_fallback_admits_total{"), "a block is a verdict");
}

/// Once the store is back, no check asks it. An outage ends when no check has failed for a second.
#[tokio::test(start_paused = true)]
async fn law_13_the_end_of_an_outage_is_logged_although_blocks_decide_all_checks() {
    let (log, _guard) = Log::start(Level::INFO);
    let (remote, clock) = Remote::new(MS);
    let limiter = remote.limiter().with_observer(Tracing::new().with_clock(clock));
    let policy = per_minute(1_000_000, 1_000);
    assert!(load(&limiter, &policy, 10, 20).await.from_blocks > 0);
    remote.set_away(true);
    // The open blocks, of at most a thousand units each, serve the first checks.
    for _ in 0..3_000 {
        if limiter.check(KEY, &policy, 1).await.is_err() {
            break;
        }
    }
    let lines = log.take();
    assert!(lines.len() == 1 && lines[0].contains(" Limits are not enforced: "), "{lines:#?}");
    remote.set_away(false);
    // The pause after a request that has failed, and then more than a second.
    sleep(60 * MS).await;
    for _ in 0..11 {
        assert_eq!(check(&limiter, &policy, 1).await.source(), Source::Lease);
        sleep(100 * MS).await;
    }
    assert!(log.take().is_empty(), "the block is not used up");
    for _ in 0..600 {
        assert_eq!(check(&limiter, &policy, 1).await.source(), Source::Lease);
    }
    // Until the next block has come.
    sleep(5 * MS).await;
    let lines = log.take();
    let back = " the store answers again; without it: 1 returned as errors to callers of the limiter ";
    assert!(lines.len() == 1 && lines[0].contains(back), "{lines:#?}");
}
