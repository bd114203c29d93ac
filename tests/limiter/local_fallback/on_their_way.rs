//! Checks and debits on their way: the share gives the room of a check away meanwhile, or the runtime of a debit ends.

use tollgate::{Algorithm, decision::Source};

use super::*;
use crate::support::unhealthy_store::UNAVAILABLE;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn law_2_what_the_store_has_charged_for_a_check_that_is_denied_pays_for_a_debt() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(Health::Slow(30 * MS));
    let late = tokio::spawn(limiter.check("k", &policy, 3).fail_local());
    tokio::time::sleep(MS).await;
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    let late = late.await.unwrap().unwrap();
    assert_eq!((late.is_allowed(), late.source()), (false, Source::Local));
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 10);
}

/// The store loses a check of `local` units, and the share admits them while one of `late` units is on its way.
#[tokio::test(start_paused = true)]
async fn law_1_beside_units_of_unknown_fate_a_check_needs_room_in_the_whole_limit_and_not_in_the_share() {
    let (log, bucket) = (per_minute(80), per_minute(80).with_algorithm(Algorithm::TokenBucket));
    for (policy, instances, local, late, expected) in [
        (&log, 1_u32, 50, 30, (true, Source::Store)),
        (&log, 1, 50, 31, (false, Source::Local)),
        (&bucket, 1, 50, 31, (false, Source::Local)),
        (&log, 8, 10, 70, (true, Source::Store)),
        (&log, 8, 10, 71, (false, Source::Local)),
    ] {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let store = UnhealthyStore::new(Health::Silent).counting_in(memory());
        let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), instances);
        let lost = tokio::spawn(limiter.check("k", policy, local).fail_local());
        tokio::time::sleep(40 * MS).await;
        store.set_health(Health::Slow(45 * MS));
        let late = tokio::spawn(limiter.check("k", policy, late).fail_local());
        assert_eq!(lost.await.unwrap().unwrap().source(), Source::Local);
        let late = late.await.unwrap().unwrap();
        assert_eq!((late.is_allowed(), late.source()), expected, "{local} units, {instances} instances");
    }
}

#[test]
fn law_1_a_debit_that_ends_on_its_way_with_its_runtime_keeps_the_instance_to_the_whole_limit() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (ended, active) = (runtime(), runtime());
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 1);
    let policy = per_minute(80);
    ended.block_on(async {
        assert_eq!(admitted(&limiter, &policy).await, 80);
        store.set_health(Health::Healthy);
        settle().await;
        // This answer starts the settlement.
        spent(&limiter, &policy).await;
        let sent = store.sent();
        while store.sent() == sent {
            tokio::task::yield_now().await;
        }
    });
    drop(ended);
    active.block_on(async {
        // Until the caution has ended also by the clock of the runtime that has ended.
        settle().await;
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, 0, "the store was not charged");
        assert_eq!(admitted(&limiter, &policy).await, 0, "this instance has admitted the whole limit");
    });
}
