//! The seeds of random tests. Every run has the same seeds, so that a test that has passed passes again. `tests/run
//! --long` sets `TOLLGATE_SEED` to a fresh number; a failed test prints it.

use std::{env, ops::Range};

use proptest::{prelude::ProptestConfig, test_runner::RngSeed};

/// The first seed of a random test: the value of `TOLLGATE_SEED`, or 0.
pub fn seed() -> u64 {
    let seed = match env::var("TOLLGATE_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("TOLLGATE_SEED={text}: write a number, as in 17")),
        Err(_) => 0,
    };
    // The test harness shows this line if the test fails.
    println!("first seed: {seed}; set TOLLGATE_SEED to repeat a run, or to begin at another seed");
    seed
}

/// `count` consecutive seeds. `TOLLGATE_SEED=17` begins at seed 17, so it repeats a failure of seed 17 first.
pub fn seeds(count: u64) -> Range<u64> {
    let first = seed();
    first..first + count
}

/// How many of `all` random cases this run tries: all in `tests/run --long`, whose seeds are fresh. The other runs try
/// the same quarter each time, because what has passed there passes again.
pub fn in_this_run(all: u32) -> u32 {
    if env::var_os("TOLLGATE_TIMES").is_some() { all } else { all.div_ceil(4) }
}

/// The configuration of a property test with this number of cases, or the number in `PROPTEST_CASES`.
pub fn cases(count: u32) -> ProptestConfig {
    let cases = env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(count);
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(seed()), failure_persistence: None, ..ProptestConfig::default() }
}
