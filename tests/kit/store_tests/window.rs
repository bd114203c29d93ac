//! When each algorithm makes units available again, to the microsecond.

use std::time::Duration;

use tollgate::{Algorithm, Policy};

use crate::failure::{Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

const MICROSECOND: Duration = Duration::from_micros(1);

pub(super) async fn a_charge_leaves_the_window_at_its_end_and_not_earlier(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowLog)?;
    let policy = Policy::new("p", 3, Duration::from_millis(100))?;
    for pause in [0, 1, 40_000] {
        let _ = store.check("k", &policy, 1).await?;
        store.clock.advance(Duration::from_micros(pause));
    }
    // The charges are 0, 0 and 1 us old, and 40 ms have passed since the last one.
    for (passed, available) in [(59_998, 0), (1, 2), (1, 3)] {
        store.clock.advance(Duration::from_micros(passed));
        let peek = store.peek("k", &policy).await?;
        ensure_eq!(peek.available(), Some(available), "available after the last {passed} us");
    }
    Ok(())
}

pub(super) async fn a_fixed_window_ends_at_a_multiple_of_its_length(store: TestedStore) -> Tested {
    store.requires(Feature::FixedWindow)?;
    let policy = Policy::per_minute("p", 3)?.with_algorithm(Algorithm::FixedWindow);
    store.clock.set_us(1_767_225_645_000_000); // 45 s after a minute began
    let spent = store.check("k", &policy, 3).await?;
    ensure_eq!(spent.policies()[0].reset, Duration::from_secs(15), "reset");
    store.clock.advance(Duration::from_secs(15) - MICROSECOND);
    ensure!(!store.check("k", &policy, 1).await?.is_allowed(), "admitted 1 us before the end of the window");
    store.clock.advance(MICROSECOND);
    ensure!(store.check("k", &policy, 3).await?.is_allowed(), "denied at the end of the window");
    Ok(())
}

pub(super) async fn a_sliding_window_counter_fades_the_previous_window(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowCounter)?;
    let policy = Policy::per_minute("p", 60)?.with_algorithm(Algorithm::SlidingWindowCounter);
    store.clock.set_us(1_767_225_645_000_000); // 45 s after a minute began
    let _ = store.check("k", &policy, 60).await?;
    // floor(60 * overlap): the whole count until the minute ends, then one unit less each second.
    for (passed, available) in [(14_999_999, 0), (1, 0), (1, 1), (999_999, 1), (1, 2), (29_000_000, 31)] {
        store.clock.advance(Duration::from_micros(passed));
        let peek = store.peek("k", &policy).await?;
        ensure_eq!(peek.available(), Some(available), "available after the last {passed} us");
    }
    Ok(())
}

pub(super) async fn a_token_bucket_refills_evenly_up_to_its_burst(store: TestedStore) -> Tested {
    store.requires(Feature::TokenBucket)?;
    let policy = Policy::per_second("p", 10)?.with_algorithm(Algorithm::TokenBucket).with_burst(4);
    let _ = store.check("k", &policy, 4).await?;
    // A unit each 100 ms.
    for (passed, available) in [(99_999, 0), (1, 1), (99_999, 1), (1, 2), (200_000, 4), (60_000_000, 4)] {
        store.clock.advance(Duration::from_micros(passed));
        let peek = store.peek("k", &policy).await?;
        ensure_eq!(peek.available(), Some(available), "available after the last {passed} us");
    }
    Ok(())
}

pub(super) async fn a_resolution_rounds_the_time_of_a_charge_up(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowLog)?;
    store.requires(Feature::Resolution)?;
    let policy = Policy::new("p", 5, Duration::from_millis(100))?.with_resolution(Duration::from_millis(10));
    store.clock.set_us(1_767_225_600_003_000);
    let _ = store.check("k", &policy, 2).await?;
    store.clock.set_us(1_767_225_600_010_001);
    let _ = store.check("k", &policy, 3).await?;
    // The first charge counts from 10 ms, the second one from 20 ms.
    for (at, available) in [(103_000, 0), (109_999, 0), (110_000, 2), (110_001, 2), (119_999, 2), (120_000, 5)] {
        store.clock.set_us(1_767_225_600_000_000 + at);
        ensure_eq!(store.peek("k", &policy).await?.available(), Some(available), "available at {at} us");
    }
    Ok(())
}

pub(super) async fn an_idle_token_bucket_admits_exactly_its_burst(store: TestedStore) -> Tested {
    store.requires(Feature::TokenBucket)?;
    let policy = Policy::per_second("p", 10)?.with_algorithm(Algorithm::TokenBucket).with_burst(4);
    for _ in 0..3 {
        let mut admitted = 0;
        for _ in 0..10 {
            admitted += u64::from(store.check("k", &policy, 1).await?.is_allowed());
        }
        ensure_eq!(admitted, 4);
        store.clock.advance(Duration::from_secs(3600));
    }
    Ok(())
}

pub(super) async fn five_thousand_a_second_and_sub_microsecond_rates_hold(store: TestedStore) -> Tested {
    store.requires(Feature::TokenBucket)?;
    let bucket = |limit| Policy::per_second("p", limit).map(|p| p.with_algorithm(Algorithm::TokenBucket).with_burst(1));
    for (limit, micros) in [(5_000, 200), (7, 142_858), (3, 333_334)] {
        let (key, policy) = (limit.to_string(), bucket(limit)?);
        ensure!(store.check(key.as_str(), &policy, 1).await?.is_allowed(), "{limit} a second: the burst was denied");
        let wait = store.check(key.as_str(), &policy, 1).await?.retry_after();
        ensure_eq!(wait, Some(Duration::from_micros(micros)), "{limit} a second: retry_after");
    }
    // Three units a microsecond: a rate that whole microseconds cannot express.
    let fast = Policy::per_second("fast", 3_000_000)?.with_algorithm(Algorithm::TokenBucket).with_burst(30);
    ensure!(store.check("k", &fast, 30).await?.is_allowed());
    store.clock.advance(Duration::from_micros(7));
    ensure_eq!(store.peek("k", &fast).await?.available(), Some(21), "available after 7 us");
    Ok(())
}
