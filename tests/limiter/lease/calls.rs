//! What leases save where they help, and cost where they do not.

use tollgate::policy::HoldSettings;

use super::*;
use crate::support::counting::CountingStore;

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_decided_in_memory() {
    for latency in [0, 1, 5] {
        let (remote, _) = Remote::new(latency * MS);
        let limiter = remote.limiter();
        let got = load(&limiter, &policy(10_000_000, 100_000), 200, 1_000).await;
        assert_eq!((got.admitted, got.denied), (200_000, 0), "latency {latency} ms");
        let [plain, holds, settlements] = remote.calls();
        // The first verdict comes after a round trip, which takes up to a millisecond longer in each direction.
        let first = 200 * (latency as usize + 2);
        assert!(plain <= first && got.from_blocks + plain as u64 == 200_000, "{plain}, {got:?}; latency {latency} ms");
        assert!(holds + settlements < 600, "{holds}, {settlements}; latency {latency} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn many_keys_with_one_check_each_cost_what_they_cost_without_a_lease() {
    let (remote, _) = Remote::new(Duration::ZERO);
    let limiter = remote.limiter();
    for number in 0..10_000 {
        let decision = limiter.check(format!("k{number}"), &policy(1_000, 100), 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Store));
    }
    assert_eq!(remote.calls(), [10_000, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_checked_slowly_takes_no_block() {
    let (remote, _) = Remote::new(Duration::ZERO);
    let limiter = remote.limiter();
    for _ in 0..200 {
        assert_eq!(check(&limiter, &policy(1_000, 100), 1).await.source(), Source::Store);
        sleep(5 * MS).await;
    }
    assert_eq!(remote.calls(), [200, 0, 0]);
}

/// Such a store refuses holds, and a shorter block may expire before it is settled.
#[tokio::test(start_paused = true)]
async fn no_block_is_taken_from_a_store_without_holds_or_under_a_time_to_live_below_a_second() {
    let (remote, _) = Remote::new(MS);
    let without_holds = Limiter::new(CountingStore::new(remote.clone()));
    for (limiter, ttl, has_blocks) in
        [(without_holds, SECOND, false), (remote.limiter(), SECOND - MS, false), (remote.limiter(), SECOND, true)]
    {
        let policy = per_minute(1_000_000, 1_000).with_holds(HoldSettings::new().with_ttl(ttl));
        let got = load(&limiter, &policy, 10, 50).await;
        assert_eq!((got.admitted, got.from_blocks > 0), (500, has_blocks), "{ttl:?}");
        assert_eq!(remote.calls()[1] > 0, has_blocks, "{ttl:?}");
    }
}

/// What was measured during a slow half second is forgotten.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_slowly_for_half_a_second_switches_no_lease_off_for_longer_than_a_second() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(10_000_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    remote.set_latency(14 * MS);
    load(&limiter, &policy, 10, 500).await;
    remote.set_latency(MS);
    load(&limiter, &policy, 10, 1_100).await;
    let got = load(&limiter, &policy, 10, 2_500).await;
    assert!(got.admitted == 25_000 && got.from_blocks > 24_000, "{got:?}");
}
