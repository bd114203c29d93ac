//! Law 1, judged by an oracle that keeps a list of everything that was admitted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tollgate::clock::{Clock, TokioClock};
use tollgate::{Check, MemoryStore, policy::HoldSettings};

use super::*;
use crate::support::seed::{self, seeds};
use crate::support::{random::Random, time_us};

/// Everything that was admitted: when by the store's clock, and when by the decisions.
#[derive(Debug)]
struct Oracle {
    clock: TokioClock,
    admitted: Mutex<Vec<[(u64, u64); 2]>>,
}

impl Oracle {
    fn note(&self, decision: &Decision, cost: u64) {
        let (now, said) = (self.clock.now_us(), time_us(decision).unwrap());
        assert!(said <= now, "{decision:?} at {now}");
        // A unit of a block is admitted now, and its decision has an earlier time, at which the block was held.
        let at = if decision.source() == Source::Lease { now } else { said };
        self.admitted.lock().unwrap().push([(at, cost), (said, cost)]);
    }

    /// The most units that any window has seen, by the store's clock or by the decisions.
    fn most(&self, window: Duration) -> u64 {
        [0, 1].map(|clock| self.most_by(clock, window)).into_iter().max().unwrap()
    }

    fn most_by(&self, clock: usize, window: Duration) -> u64 {
        let window_us = u64::try_from(window.as_micros()).unwrap();
        let mut admitted: Vec<_> = self.admitted.lock().unwrap().iter().map(|times| times[clock]).collect();
        admitted.sort_unstable();
        let (mut inside, mut units, mut most) = (VecDeque::new(), 0, 0);
        for (at, cost) in admitted {
            inside.push_back((at, cost));
            units += cost;
            while inside.front().is_some_and(|(first, _)| first + window_us <= at) {
                units -= inside.pop_front().unwrap().1;
            }
            most = most.max(units);
        }
        most
    }

    fn total(&self) -> u64 {
        self.admitted.lock().unwrap().iter().map(|[(_, cost), _]| cost).sum()
    }
}

/// A process that checks at random speeds, drops checks, stalls, and closes its limiter now and then.
async fn process(remote: Remote, policy: Policy, oracle: Arc<Oracle>, seed: u64) {
    let mut random = Random(seed);
    let mut limiter = remote.limiter();
    for _ in 0..40 {
        let per_ms = random.pick(&[0, 1, 3, 20, 100]);
        let largest = random.pick(&[1, 1, 1, 3, 40]);
        for _ in 0..random.below(60) {
            for _ in 0..per_ms {
                let cost = random.cost(largest);
                if random.one_in(50) {
                    drop(tokio::time::timeout(MS / 10, limiter.check(KEY, &policy, cost)).await);
                    continue;
                }
                let decision = check(&limiter, &policy, cost).await;
                if decision.is_allowed() {
                    oracle.note(&decision, cost);
                }
            }
            sleep(MS).await;
        }
        if random.one_in(10) {
            limiter.close().await;
            limiter = remote.limiter();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn law_1_no_window_sees_more_than_the_limit_with_four_processes() {
    for seed in 0..4 {
        let latency = [0, 1, 3, 8][seed % 4] * MS;
        let limit = [50, 1_000, 20_000][seed % 3];
        let (remote, clock) = Remote::new(latency);
        let remote = if seed % 2 == 0 { remote } else { remote.with_jitter() };
        let policy = policy(limit, [limit, limit / 10, 16][seed % 3]);
        let oracle = Arc::new(Oracle { clock, admitted: Mutex::default() });
        let processes = (0..4).map(|number| {
            let seed = 10 * seed as u64 + number;
            tokio::spawn(process(remote.clone(), policy.clone(), Arc::clone(&oracle), seed))
        });
        for process in processes.collect::<Vec<_>>() {
            process.await.unwrap();
        }
        let most = oracle.most(SECOND);
        assert!(most <= limit, "seed {seed}: {most} of {limit}");
        assert!(most >= limit * 9 / 10 || limit == 20_000, "seed {seed}: {most} of {limit}, {} in all", oracle.total());
    }
}

#[test]
fn law_1_a_block_is_not_spent_when_its_hold_may_have_expired() {
    let limiter = Limiter::new(MemoryStore::new());
    let holds = HoldSettings::new().with_ttl(SECOND);
    let policy = Policy::per_minute("p", 100_000).unwrap().with_holds(holds).with_lease(1_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(runtime.block_on(load(&limiter, &policy, 20, 20)).from_blocks > 0);
    // The keeper of the lease stands still from here, as it does when the process is stopped.
    assert_eq!(limiter.try_check(KEY, &policy, 1).unwrap().source(), Source::Lease);
    std::thread::sleep(SECOND);
    assert_eq!(limiter.try_check(KEY, &policy, 1).unwrap().source(), Source::Store);
}

#[tokio::test(start_paused = true)]
async fn law_1_a_long_stall_lets_no_more_through_than_the_limit() {
    let (remote, clock) = Remote::new(MS);
    let policy = policy(1_000, 500);
    let limiter = hot(&remote, &policy).await;
    // The process is stopped for longer than a hold lives. Meanwhile the block was charged and has left its window.
    tokio::time::advance(70 * SECOND).await;
    let other = remote.limiter();
    let oracle = Oracle { clock, admitted: Mutex::default() };
    for number in 0..3_000 {
        let limiter = if number % 2 == 0 { &limiter } else { &other };
        let decision = check(limiter, &policy, 1).await;
        if decision.is_allowed() {
            oracle.note(&decision, 1);
        }
    }
    assert!(oracle.most(SECOND) <= 1_000);
}

/// A plan that changes: some checks of a key have a lease, others none.
#[tokio::test(start_paused = true)]
async fn law_1_a_lease_that_is_switched_on_and_off_lets_no_more_through_than_the_limit() {
    for seed in seeds(seed::in_this_run(16).into()) {
        let (remote, clock) = Remote::new([1, 3, 8][seed as usize % 3] * MS);
        let (leased, plain) = (policy(3_000, 1_000), Policy::per_second("p", 3_000).unwrap());
        let (limiter, mut random) = (remote.limiter(), Random(seed));
        let oracle = Arc::new(Oracle { clock, admitted: Mutex::default() });
        let mut checks = JoinSet::new();
        for phase in 0..40 {
            let policy = if phase % 2 == 0 { &leased } else { &plain };
            for _ in 0..random.below(250) {
                for _ in 0..10 {
                    let (check, oracle) = (limiter.check(KEY, policy, 1), Arc::clone(&oracle));
                    checks.spawn(async move {
                        let decision = check.await.unwrap();
                        if decision.is_allowed() {
                            oracle.note(&decision, 1);
                        }
                        decision.source()
                    });
                }
                sleep(MS).await;
            }
        }
        let sources = checks.join_all().await;
        assert!(sources.contains(&Source::Lease));
        let most = oracle.most(SECOND);
        assert!((2_950..=3_000).contains(&most), "seed {seed}: {most} of 3 000");
    }
}

/// The units of this process's blocks are available to its checks without a lease, too.
#[tokio::test(start_paused = true)]
async fn law_4_a_check_without_a_lease_gets_what_the_blocks_of_its_process_hold() {
    let (remote, _) = Remote::new(MS);
    let (leased, plain) = (per_minute(10_000, 5_000), Policy::per_minute("p", 10_000).unwrap());
    let limiter = hot(&remote, &leased).await;
    assert_eq!(limiter.peek(KEY, &plain).await.unwrap().available(), Some(9_800));
    assert!(!check(&limiter, &plain, 9_801).await.is_allowed());
    assert!(check(&limiter, &plain, 9_800).await.is_allowed());
    assert!(!check(&limiter, &leased, 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn law_4_a_charge_of_what_fits_without_a_lease_gets_what_the_blocks_of_its_process_hold() {
    let (remote, _) = Remote::new(MS);
    let (leased, plain) = (per_minute(10_000, 5_000), Policy::per_minute("p", 10_000).unwrap());
    let limiter = hot(&remote, &leased).await;
    assert_eq!(limiter.peek(KEY, &plain).await.unwrap().available(), Some(9_800));
    let decision = limiter.check_up_to(KEY, &plain, 10_000).await.unwrap();
    assert_eq!(decision.policies()[0].cost, 9_800, "{decision:?}");
    assert!(!check(&limiter, &leased, 1).await.is_allowed());
}

/// A policy with holds sees blocks as it sees other holds.
#[tokio::test(start_paused = true)]
async fn law_4_a_peek_at_costs_beside_blocks_decides_as_the_check() {
    let plain = Policy::per_minute("p", 10_000).unwrap();
    let holding = plain.clone().with_holds(HoldSettings::new());
    for (policy, is_allowed) in [(&plain, true), (&holding, false)] {
        let (remote, _) = Remote::new(MS);
        let limiter = hot(&remote, &per_minute(10_000, 5_000)).await;
        let peek = limiter.peek_all(Check::new(KEY, policy, 9_800)).await.unwrap();
        let decisions = [peek, check(&limiter, policy, 9_800).await];
        assert_eq!(decisions.each_ref().map(Decision::is_allowed), [is_allowed; 2], "{decisions:?}");
    }
}
