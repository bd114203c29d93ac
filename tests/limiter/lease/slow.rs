//! Leases on a slow network: no check loses its verdict because it has waited for a block.

use tollgate::policy::HoldSettings;

use super::*;

/// Starts `per_ms` checks in each of `ms` milliseconds. Returns how many got no verdict.
async fn failures(limiter: &Limiter, policy: &Policy, per_ms: u64, ms: u64) -> usize {
    let mut checks = JoinSet::new();
    for _ in 0..ms {
        (0..per_ms).for_each(|_| drop(checks.spawn(limiter.check(KEY, policy, 1))));
        sleep(MS).await;
    }
    checks.join_all().await.iter().filter(|decision| decision.is_err()).count()
}

/// The deadline is 50 ms.
#[tokio::test(start_paused = true)]
async fn a_check_gets_its_verdict_on_any_network_on_which_it_gets_one_without_a_lease() {
    let plain = Policy::per_minute("p", 1_000_000).unwrap().with_holds(HoldSettings::new());
    let leased = plain.clone().with_lease(5_000);
    for round_trip in [10, 14, 20, 24, 26, 30, 40, 45] {
        for policy in [&plain, &leased] {
            let (remote, _) = Remote::new(round_trip * MS);
            let failures = failures(&remote.limiter(), policy, 1, 3_500).await;
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
