//! Blocks whose runtimes end or stand still.

use std::thread;

use tokio::{runtime, task::yield_now, time::Instant};
use tollgate::policy::HoldSettings;

use super::*;

fn current_thread() -> runtime::Runtime {
    runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn spent(remote: &Remote, policy: &Policy) -> u64 {
    policy.limit() - remote.limiter().peek(KEY, policy).await.unwrap().available().unwrap()
}

/// Waits until the store has charged as much as was admitted: less than the time-to-live of a block, after which it
/// would be charged in full.
async fn charges_only(remote: &Remote, policy: &Policy, admitted: u64) {
    let start = Instant::now();
    loop {
        let spent = spent(remote, policy).await;
        assert!(spent >= admitted, "law 1: {spent} of {admitted} are charged");
        if spent == admitted {
            return;
        }
        assert!(start.elapsed() < SECOND, "{} units are lost", spent - admitted);
        sleep(5 * MS).await;
    }
}

/// A `block_on` for each job, as of a plug-in or a command: each keeper ends with an open block, and many with a
/// request on its way.
#[test]
fn law_15_a_runtime_for_each_job_loses_no_units() {
    let (remote, _) = Remote::new(MS);
    let (policy, limiter) = (per_minute(1_000_000, 5_000), remote.limiter());
    let (mut admitted, mut job, mut with_blocks) = (0, 0, 0);
    // On a busy machine, some jobs are over soon after they have a block, or before.
    while with_blocks < 40 {
        assert!(job < 1_000, "{with_blocks} jobs had blocks");
        let runtime = current_thread();
        let got = runtime.block_on(load(&limiter, &policy, 50, 6 + job % 5));
        assert_eq!(got.denied, 0);
        admitted += got.admitted;
        job += 1;
        with_blocks += u32::from(got.from_blocks > got.admitted / 4);
    }
    current_thread().block_on(async {
        let _ = limiter.peek("another key", &policy).await.unwrap();
        charges_only(&remote, &policy, admitted).await;
    });
}

/// Its thread exists, and nothing drives it any more.
#[test]
fn law_15_blocks_of_a_runtime_that_stands_still_are_given_back_by_another_one() {
    let (remote, _) = Remote::new(MS);
    let (policy, limiter) = (per_minute(1_000_000, 5_000), remote.limiter());
    let (still, other) = (current_thread(), current_thread());
    let mut admitted = 0;
    // Until a block is open that is not spent.
    loop {
        admitted += still.block_on(load(&limiter, &policy, 50, 5)).admitted;
        if other.block_on(spent(&remote, &policy)) > admitted {
            break;
        }
    }
    other.block_on(gives_back(&remote, &policy, &limiter, admitted));
    drop(still);
}

/// The next check of any key gives back the blocks of a runtime that stands still.
async fn gives_back(remote: &Remote, policy: &Policy, limiter: &Limiter, admitted: u64) {
    sleep(2 * IDLE).await;
    assert!(spent(remote, policy).await > admitted, "a block is held");
    let decision = limiter.check("another key", policy, 1).await.unwrap();
    assert_eq!(decision.source(), Source::Store);
    charges_only(remote, policy, admitted).await;
}

/// A runtime that stands still. The store has made a block for it, whose answer it has not received.
struct Still {
    remote: Remote,
    policy: Policy,
    limiter: Limiter,
    _runtime: runtime::Runtime,
    admitted: u64,
}

impl Still {
    fn new(other: &runtime::Runtime) -> Self {
        // On a busy machine, the runtime may stand still before the block is made, or after a check that waits for it
        // has given up.
        (0..100).find_map(|_| Self::attempt(other)).expect("a block is on its way")
    }

    fn attempt(other: &runtime::Runtime) -> Option<Self> {
        let (remote, _) = Remote::new(MS);
        remote.set_keeps_holds(true);
        let (policy, limiter, runtime) = (per_minute(1_000_000, 5_000), remote.limiter(), current_thread());
        let admitted = runtime.block_on(async {
            let mut checks = JoinSet::new();
            while remote.calls()[1] == 0 {
                if checks.len() >= 5_000 {
                    return None;
                }
                (0..50).for_each(|_| drop(checks.spawn(limiter.check(KEY, &policy, 1))));
                sleep(MS).await;
            }
            let plain = remote.calls()[0];
            for _ in 0..plain {
                assert!(checks.join_next().await?.unwrap().ok()?.is_allowed());
            }
            sleep(2 * MS).await;
            (remote.calls() == [plain, 1, 0]).then_some(plain as u64)
        })?;
        remote.set_keeps_holds(false);
        let is_held = other.block_on(spent(&remote, &policy)) > admitted;
        is_held.then_some(Self { remote, policy, limiter, _runtime: runtime, admitted })
    }
}

#[test]
fn law_15_a_block_on_its_way_to_a_runtime_that_stands_still_is_released_by_another_one() {
    let other = current_thread();
    let still = Still::new(&other);
    other.block_on(gives_back(&still.remote, &still.policy, &still.limiter, still.admitted));
}

#[test]
fn law_15_a_block_on_its_way_to_a_runtime_that_stands_still_is_released_by_a_check_that_waits_for_it() {
    let other = current_thread();
    let still = Still::new(&other);
    other.block_on(async {
        assert!(still.limiter.check(KEY, &still.policy, 1).await.unwrap().is_allowed());
        charges_only(&still.remote, &still.policy, still.admitted + 1).await;
    });
}

#[test]
fn law_15_a_block_on_its_way_to_a_runtime_that_stands_still_is_released_by_a_reset_and_by_a_close() {
    let other = current_thread();
    let still = Still::new(&other);
    other.block_on(async {
        // Under a policy with holds, a reset would forget them with the count.
        let plain = Policy::per_minute("p", still.policy.limit()).unwrap();
        assert!(still.limiter.reset(KEY, &plain).await.unwrap());
        charges_only(&still.remote, &still.policy, 0).await;
    });
    let still = Still::new(&other);
    other.block_on(async {
        still.limiter.close().await;
        charges_only(&still.remote, &still.policy, still.admitted).await;
    });
}

/// Such checks use the lease, but wait for no block that would show that its keeper does not run.
#[test]
fn law_15_a_block_on_its_way_to_a_runtime_that_stands_still_is_released_although_expensive_checks_go_on() {
    let other = current_thread();
    let Still { remote, policy, limiter, admitted, _runtime } = Still::new(&other);
    other.block_on(async {
        let (start, mut admitted, cost) = (Instant::now(), admitted, 5_001);
        while spent(&remote, &policy).await > admitted {
            // Less than the time after which a lease ends that serves no check.
            assert!(start.elapsed() < 2 * SECOND, "the block is still held");
            assert!(check(&limiter, &policy, cost).await.is_allowed());
            admitted += cost;
            sleep(50 * MS).await;
        }
        assert_eq!(spent(&remote, &policy).await, admitted, "law 1");
    });
}

/// Policies of one name may have different limits, such as those of two plans. They share a count.
#[test]
fn a_check_that_gives_up_its_lease_leaves_another_lease_of_the_count_alone() {
    let other = current_thread();
    // On a busy machine, the block of the other lease may be used up.
    let leaves_alone = (0..10).any(|_| {
        let still = Still::new(&other);
        other.block_on(async {
            let healthy = per_minute(2_000_000, 5_000);
            assert!(load(&still.limiter, &healthy, 10, 20).await.from_blocks > 0);
            assert!(still.limiter.check(KEY, &still.policy, 1).await.unwrap().is_allowed());
            check(&still.limiter, &healthy, 1).await.source() == Source::Lease
        })
    });
    assert!(leaves_alone);
}

/// The store answers a request for a block while the handler computes. Another check comes before the answer is read.
#[test]
fn a_handler_that_computes_ends_no_lease_of_its_own_runtime() {
    let (remote, _) = Remote::new(5 * MS);
    let policy = per_minute(1_000_000, 5_000);
    current_thread().block_on(async {
        let limiter = hot(&remote, &policy).await;
        let mut kept = 0;
        for round in 0..10 {
            load(&limiter, &policy, 10, 60).await;
            let [_, known, _] = remote.calls();
            while remote.calls()[1] == known {
                assert!(check(&limiter, &policy, 1).await.is_allowed());
                yield_now().await;
            }
            thread::sleep(150 * MS);
            assert!(limiter.check(format!("cold {round}"), &policy, 1).await.unwrap().is_allowed());
            kept += u32::from(check(&limiter, &policy, 1).await.source() == Source::Lease);
        }
        // On a busy machine, a block may be used up.
        assert!(kept > 4, "{kept} of 10 leases are left");
    });
}

/// The store has refused the first end of a hold.
#[test]
fn law_15_a_close_waits_for_the_ends_of_holds_although_a_keeper_stands_still() {
    let other = current_thread();
    let still = Still::new(&other);
    other.block_on(async {
        let holding = Policy::per_minute("h", 1_000).unwrap().with_holds(HoldSettings::new());
        let hold = still.limiter.hold("x", &holding, 100).await.unwrap().into_result().unwrap();
        still.remote.set_away(true);
        assert!(hold.release().await.is_err());
        still.remote.set_away(false);
        still.limiter.close().await;
        let left = still.remote.limiter().peek("x", &holding).await.unwrap().available();
        assert_eq!(left, Some(1_000));
    });
}
