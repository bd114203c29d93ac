//! Changes of limits over the memory store.

use tollgate::{Limiter, ManualClock, MemoryStore};

use super::{changes, load};

fn start() -> changes::Fixture {
    let clock = ManualClock::default();
    changes::Fixture::new(Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock, ())
}

changes::suite!(start);

/// Takes the time of 40 changes of the file.
#[test]
fn law_1_and_2_hold_while_the_file_changes_ten_times_a_second() {
    load::run("memory", 40, || Limiter::new(MemoryStore::new()));
}
