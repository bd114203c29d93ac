//! Random traces after which a decision tells when nothing is left, and an oracle spends at that pace to see it.

use std::time::Duration;

use tollgate::{Algorithm, Decision, Limiter, ManualClock, Policy, clock::Clock};
use tollgate_testing::Oracle;

use super::{ALGORITHMS, random::Random};

/// What the forecasts of a trace have said.
#[derive(Debug, Default)]
pub struct Told {
    /// Times that are exact.
    pub exact: u32,
    /// Times that are the earliest possible ones, or estimates.
    pub other: u32,
    /// No time: the pace exhausts nothing.
    pub never: u32,
}

/// Runs one trace of `steps` steps under each algorithm, and compares each forecast with the oracle.
pub async fn forecasts(limiter: &Limiter, clock: &ManualClock, seed: u64, steps: usize) -> Told {
    let mut told = Told::default();
    for algorithm in ALGORITHMS {
        for resolution_us in [1, 700] {
            if resolution_us == 1 || algorithm == Algorithm::SlidingWindowLog {
                trace(limiter, clock, (algorithm, resolution_us), seed, steps, &mut told).await;
            }
        }
    }
    told
}

async fn trace(
    limiter: &Limiter,
    clock: &ManualClock,
    (algorithm, resolution_us): (Algorithm, u64),
    seed: u64,
    steps: usize,
    told: &mut Told,
) {
    let mut random = Random(seed);
    let (limit, window_us) = (5 + random.below(30), 20_000 + random.below(100_000));
    let name = format!("{algorithm:?}-{resolution_us}-{seed}");
    let policy = Policy::new(name, limit, Duration::from_micros(window_us)).unwrap().with_algorithm(algorithm);
    let policy = match algorithm {
        Algorithm::SlidingWindowLog => policy.with_resolution(Duration::from_micros(resolution_us)),
        _ => policy,
    };
    let mut oracle = Oracle::new(resolution_us);
    for step in 0..steps {
        let longest = random.pick(&[1, window_us / 50, window_us / 10, window_us]);
        clock.advance(Duration::from_micros(random.below(longest + 1)));
        let cost = random.cost(4);
        let checked = limiter.check("k", &policy, cost).await.unwrap();
        if checked.is_allowed() {
            oracle.charge(&policy, clock.now_us(), cost, true);
        }
        let peeked = limiter.peek("k", &policy).await.unwrap();
        assert_eq!(checked.exhausted_in(), peeked.exhausted_in(), "seed {seed}, step {step}: {checked:?}");
        compare(&peeked, &oracle, &policy, clock.now_us(), told);
    }
}

/// Compares the forecast with a key that spends one unit after the other, at its pace and at even distances.
fn compare(peeked: &Decision, oracle: &Oracle, policy: &Policy, now_us: u64, told: &mut Told) {
    let window_us = micros(policy.window().unwrap());
    let available = oracle.available(policy, now_us);
    let spent = policy.capacity() - available;
    let in_us = match policy.algorithm() {
        Algorithm::FixedWindow => (now_us % window_us).max(1),
        _ => window_us + policy.resolution().map_or(1, micros) - 1,
    };
    let forecast = peeked.exhausted_in().map(micros);
    let why = format!("{forecast:?}, {spent} spent and {available} left: {peeked:?}");
    if spent == 0 {
        assert_eq!(forecast, None, "{why}");
        return;
    }
    let expected = available * in_us / spent;
    let all_left_us = micros(oracle.wait(policy, now_us, policy.capacity()));
    let within_us = match policy.algorithm() {
        Algorithm::FixedWindow => window_us - now_us % window_us,
        Algorithm::TokenBucket => window_us,
        _ => in_us.min(all_left_us),
    };
    // What is left is zero also if the window would end before.
    let is_told = expected < within_us || available == 0;
    assert_eq!(forecast, is_told.then_some(expected), "{why}");
    if policy.algorithm() == Algorithm::TokenBucket {
        return;
    }
    // The pace goes on for three windows, or to the end of a fixed one.
    let until_us = match policy.algorithm() {
        Algorithm::FixedWindow => now_us - now_us % window_us + window_us - 1,
        _ => now_us + 3 * window_us,
    };
    let mut future = oracle.clone();
    let at_us = |number: u64| now_us + (number * in_us).div_ceil(spent);
    let first_denied = (1..).take_while(|number| at_us(*number) <= until_us).find(|number| {
        let fits = future.fits(policy, at_us(*number), 1);
        future.charge(policy, at_us(*number), 1, true);
        !fits
    });
    let is_exact = match policy.algorithm() {
        Algorithm::FixedWindow => true,
        Algorithm::SlidingWindowLog => peeked.policies()[0].next > Duration::from_micros(expected),
        _ => false,
    };
    match (forecast, is_exact) {
        // Nothing is left, so the unit after those that were left is denied, unless more becomes available first.
        (Some(forecast), true) => {
            let mut at_the_end = oracle.clone();
            (1..=available).for_each(|number| at_the_end.charge(policy, at_us(number).min(now_us + forecast), 1, true));
            assert_eq!(at_the_end.available(policy, now_us + forecast), 0, "{why}");
            told.exact += 1;
        }
        (Some(_), false) => told.other += 1,
        (None, _) if policy.algorithm() == Algorithm::SlidingWindowCounter => told.never += 1,
        (None, _) => {
            assert_eq!(first_denied, None, "{why}");
            told.never += 1;
        }
    }
    assert!(first_denied.is_none_or(|number| number > available), "denied early, at unit {first_denied:?}: {why}");
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
