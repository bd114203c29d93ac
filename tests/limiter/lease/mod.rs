//! Policies with leases, on a store in memory whose clock follows tokio's paused time.

mod blocks;
mod by_hand;
mod calls;
mod decisions;
mod moving;
mod never_over;
mod remote;
mod runtimes;
mod slow;
mod waiters;

use std::time::Duration;

use tokio::{task::JoinSet, time::sleep};
use tollgate::{Decision, Limiter, Policy, decision::Source};

use self::remote::Remote;

const KEY: &str = "tenant:3";
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Under a window of a minute, blocks are given back when there was no check for a second.
const IDLE: Duration = Duration::from_millis(1_050);

fn policy(limit: u64, units: u64) -> Policy {
    Policy::per_second("p", limit).unwrap().with_lease(units)
}

fn per_minute(limit: u64, units: u64) -> Policy {
    Policy::per_minute("p", limit).unwrap().with_lease(units)
}

async fn check(limiter: &Limiter, policy: &Policy, cost: u64) -> Decision {
    limiter.check(KEY, policy, cost).await.unwrap()
}

/// What a load has got.
#[derive(Debug, Default)]
struct Got {
    admitted: u64,
    denied: u64,
    from_blocks: u64,
}

/// Starts `per_ms` checks of one unit in each of `ms` milliseconds, and waits for all.
async fn load(limiter: &Limiter, policy: &Policy, per_ms: u64, ms: u64) -> Got {
    let mut got = Got::default();
    let mut checks = JoinSet::new();
    for _ in 0..ms {
        for _ in 0..per_ms {
            checks.spawn(limiter.check(KEY, policy, 1));
        }
        sleep(MS).await;
    }
    while let Some(decision) = checks.join_next().await {
        let decision = decision.unwrap().unwrap();
        *if decision.is_allowed() { &mut got.admitted } else { &mut got.denied } += 1;
        got.from_blocks += u64::from(decision.source() == Source::Lease);
    }
    got
}

/// A limiter whose key is hot, with an open block.
async fn hot(remote: &Remote, policy: &Policy) -> Limiter {
    let limiter = remote.limiter();
    let got = load(&limiter, policy, 10, 20).await;
    assert!(got.from_blocks > 0, "{got:?}");
    limiter
}
