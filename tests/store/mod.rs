//! The memory store, and the suite that every store passes.

mod full;
mod memory;
mod redis_urls;
mod suite;

mod on {
    use tollgate::{ManualClock, MemoryStore};

    use super::suite::{Fixture, suite};

    fn memory_fixture() -> Fixture {
        let clock = ManualClock::default();
        Fixture::new(MemoryStore::new().with_clock(clock.clone()), clock, ())
    }

    suite!(memory, super::memory_fixture);
}
