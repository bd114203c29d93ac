//! The memory store, and the suite that every store passes.

mod full;
mod memory;
mod redis_urls;
mod suite;

mod on {
    use tollgate::{ManualClock, MemoryStore};

    use super::suite::{Bench, suite};

    fn memory_bench() -> Bench {
        let clock = ManualClock::default();
        Bench::new(MemoryStore::new().with_clock(clock.clone()), clock, ())
    }

    suite!(memory, super::memory_bench);
}
