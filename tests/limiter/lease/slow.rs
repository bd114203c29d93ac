//! Leases on a slow network, and on a store that is slow because it has much to do.

use std::sync::{Arc, Mutex};

use tokio::time::{Instant, sleep_until};
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, ErrorKind, Key, MemoryStore, clock::TokioClock, policy::HoldSettings};

use super::*;
use crate::support::stopwatch::Stopwatch;

const DEADLINE: Duration = Duration::from_millis(50);

/// Starts `per_ms` checks in each of `ms` milliseconds. Returns how many got no verdict.
async fn failures(limiter: &Limiter, policy: &Policy, per_ms: u64, ms: u64) -> usize {
    let mut checks = JoinSet::new();
    for _ in 0..ms {
        (0..per_ms).for_each(|_| drop(checks.spawn(limiter.check(KEY, policy, 1))));
        sleep(MS).await;
    }
    checks.join_all().await.iter().filter(|decision| decision.is_err()).count()
}

#[tokio::test(start_paused = true)]
async fn a_check_gets_its_verdict_on_any_network_on_which_it_gets_one_without_a_lease() {
    let plain = Policy::per_minute("p", 1_000_000).unwrap().with_holds(HoldSettings::new());
    let leased = plain.clone().with_lease(5_000);
    for round_trip in [10, 14, 20, 24, 26, 30, 40, 45] {
        for policy in [&plain, &leased] {
            let (remote, _) = Remote::new(round_trip * MS);
            let limiter = remote.limiter();
            let failures = failures(&limiter, policy, 1, 3_500).await;
            let [_, blocks, _] = remote.calls();
            assert_eq!(blocks > 0, *policy == leased);
            assert_eq!(failures, 0, "round trip {round_trip} ms, {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_becomes_slow_costs_the_verdicts_of_half_a_deadline_at_most() {
    for round_trip in [26, 30, 40, 45] {
        let (remote, _) = Remote::new(MS);
        let (policy, limiter) = (policy(10_000_000, 100_000), remote.limiter());
        assert_eq!(failures(&limiter, &policy, 10, 2_000).await, 0);
        remote.set_latency(round_trip * MS);
        let failures = failures(&limiter, &policy, 10, 5_000).await;
        assert!(failures <= 250, "round trip {round_trip} ms: {failures} got no verdict");
    }
}

#[tokio::test(start_paused = true)]
async fn law_2_a_process_alone_is_admitted_the_whole_limit_on_a_slow_network() {
    for round_trip in [14, 20, 30, 45] {
        let (remote, _) = Remote::new(round_trip * MS);
        let got = load(&remote.limiter(), &per_minute(6_000, 2_000), 2, 5_000).await;
        assert_eq!((got.admitted, got.denied), (6_000, 4_000), "round trip {round_trip} ms");
        assert!(got.from_blocks > 1_000, "round trip {round_trip} ms: {got:?}");
    }
}

/// As after a change of the plan, while the blocks of before are open. Where a denied check has no time to ask again,
/// it is denied once, and its process takes no block until the limit is far again.
#[tokio::test(start_paused = true)]
async fn law_2_a_check_under_another_limit_is_denied_once_at_most_beside_blocks_on_a_slow_network() {
    for (round_trip, most) in [(1, 0), (12, 0), (20, 1), (30, 1), (45, 1)] {
        let (remote, _) = Remote::new(round_trip * MS);
        let (leased, small) = (per_minute(1_000_000, 5_000), Policy::per_minute("p", 2_500).unwrap());
        let limiter = remote.limiter();
        load(&limiter, &leased, 2, 600).await;
        let mut denied = 0;
        for _ in 0..10 {
            // All spend less than 2 500.
            load(&limiter, &leased, 2, 50).await;
            sleep(60 * MS).await;
            denied += u64::from(!check(&limiter, &small, 1).await.is_allowed());
        }
        assert!(denied <= most, "round trip {round_trip} ms: {denied}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_of_what_fits_gets_its_verdict_on_any_network_on_which_it_gets_one_without_blocks() {
    let plain = Policy::per_minute("p", 1_000_000).unwrap();
    let leased = plain.clone().with_lease(5_000);
    for round_trip in [14, 26, 30, 40, 45] {
        for policy in [&plain, &leased] {
            let (remote, _) = Remote::new(round_trip * MS);
            let limiter = remote.limiter();
            assert!(load(&limiter, &leased, 2, 600).await.from_blocks > 0);
            let charged = limiter.check_up_to(KEY, policy, 5).await;
            assert_eq!(charged.unwrap().policies()[0].cost, 5, "round trip {round_trip} ms, {policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn law_8_a_charge_of_what_fits_and_the_blocks_that_it_needs_take_one_deadline() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    remote.set_latency(SECOND);
    let stopwatch = Stopwatch::start();
    let error = limiter.check_up_to(KEY, &policy, 5).await.unwrap_err();
    stopwatch.assert_elapsed(DEADLINE);
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
}

/// The check needs the blocks of two counts, and no settlement is answered.
#[tokio::test(start_paused = true)]
async fn law_8_a_denied_check_and_all_blocks_that_it_needs_take_one_deadline() {
    let (remote, _) = Remote::new(MS);
    let policies = ["p", "q"].map(|name| Policy::per_minute(name, 10_000).unwrap().with_lease(5_000));
    let limiter = hot(&remote, &policies[0]).await;
    assert!(load(&limiter, &policies[1], 10, 20).await.from_blocks > 0);
    // Until a block that may be on its way has come.
    sleep(20 * MS).await;
    remote.set_loses_settlements(true);
    let before = remote.calls()[2];
    let stopwatch = Stopwatch::start();
    let both = Check::new(KEY, &policies[0], 9_800).and(KEY, &policies[1], 9_800);
    assert!(!limiter.check_all(both).await.unwrap().is_allowed());
    stopwatch.assert_elapsed(DEADLINE);
    assert!(remote.calls()[2] >= before + 2, "both counts give blocks back");
}

/// As behind one dial, or in a process that has just started.
#[tokio::test(start_paused = true)]
async fn one_slow_answer_keeps_no_blocks_from_a_key_on_a_fast_network() {
    let (remote, _) = Remote::new(40 * MS);
    let (policy, limiter) = (per_minute(10_000_000, 5_000), remote.limiter());
    load(&limiter, &policy, 50, 1).await;
    remote.set_latency(MS);
    let got = load(&limiter, &policy, 10, 500).await;
    assert!(got.from_blocks > 4_000, "{got:?}");
}

/// Judges 50 calls a millisecond, one after another.
#[derive(Clone, Debug)]
struct Busy {
    memory: MemoryStore,
    free: Arc<Mutex<Instant>>,
}

impl Busy {
    fn answer<T: Send + 'static>(&self, judge: impl FnOnce(&MemoryStore) -> Answer<T> + Send + 'static) -> Answer<T> {
        let this = self.clone();
        Answer::pending(async move {
            let done = {
                let mut free = this.free.lock().unwrap();
                *free = (*free).max(Instant::now()) + MS / 50;
                *free
            };
            sleep_until(done + MS).await;
            let Answer::Ready(result) = judge(&this.memory) else { panic!("a memory store answers at once") };
            result
        })
    }
}

impl Store for Busy {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let check = check.clone();
        self.answer(move |memory| memory.check(&check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let (key, policy) = (key.clone(), policy.clone());
        self.answer(move |memory| memory.reset(&key, &policy))
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let hold = hold.clone();
        self.answer(move |memory| memory.change_hold(&hold, change))
    }
}

/// Each of 1 250 callers checks, and again 5 ms after the verdict. The store alone takes about 20 ms for a check then.
#[tokio::test(start_paused = true)]
async fn a_lease_relieves_a_store_that_is_busy_when_it_is_switched_on() {
    let memory = MemoryStore::new().with_clock(TokioClock::new());
    let limiter = Limiter::new(Busy { memory, free: Arc::new(Mutex::new(Instant::now())) });
    let plain = Policy::per_second("p", 10_000_000).unwrap().with_holds(HoldSettings::new());
    let leased = plain.clone().with_lease(100_000);
    let (start, mut callers) = (Instant::now(), JoinSet::new());
    for _ in 0..1_250 {
        let (limiter, plain, leased) = (limiter.clone(), plain.clone(), leased.clone());
        callers.spawn(async move {
            let (mut all, mut from_blocks) = (0, 0);
            while start.elapsed() < 3 * SECOND {
                let policy = if start.elapsed() < SECOND / 2 { &plain } else { &leased };
                let source = limiter.check(KEY, policy, 1).await.unwrap().source();
                if start.elapsed() > SECOND {
                    all += 1;
                    from_blocks += u64::from(source == Source::Lease);
                }
                sleep(5 * MS).await;
            }
            (all, from_blocks)
        });
    }
    let counts = callers.join_all().await;
    let (all, from_blocks) = counts.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(from_blocks > all / 10 * 9, "{from_blocks} of {all} checks were decided in memory");
}
