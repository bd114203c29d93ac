//! Blocks whose runtimes end or stand still.

use tokio::{runtime, time::Instant};

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
    other.block_on(async {
        sleep(2 * IDLE).await;
        assert!(spent(&remote, &policy).await > admitted, "the block is open");
        let decision = limiter.check("another key", &policy, 1).await.unwrap();
        assert_eq!(decision.source(), Source::Store);
        charges_only(&remote, &policy, admitted).await;
    });
    drop(still);
}
