//! A simulated world around the current thread, for the tests in `tests/worlds`.
//!
//! In a world, time outside of tokio's clock, random numbers and connections come from the test, so that the same seed
//! gives the same run. Everything that the world drives runs on the thread that has entered it.

mod here;

use std::{
    fmt,
    hash::{self, BuildHasher, DefaultHasher, Hasher},
    marker::PhantomData,
};

use foldhash::{SharedSeed, fast};

use self::here::random;

#[cfg(feature = "redis")]
pub(crate) use self::here::dial;
pub(crate) use self::here::now_us;
#[cfg(feature = "redis")]
pub use self::here::{Dial, Dialled, Stream};

/// The world of this thread. Dropping it leaves the world.
#[must_use]
pub struct World {
    /// A world belongs to its thread.
    here: PhantomData<*const ()>,
}

impl World {
    /// Enters a world on this thread, with its time in microseconds since the Unix epoch and the seed of its random
    /// numbers.
    pub fn enter(now_us: u64, seed: u64) -> Self {
        here::set_time_us(Some(now_us));
        here::set_seed(seed);
        Self { here: PhantomData }
    }

    /// Sets what dials in place of TCP.
    #[cfg(feature = "redis")]
    pub fn with_dial(self, dial: Dial) -> Self {
        here::set_dial(Some(dial));
        self
    }

    /// Sets the time. The test moves tokio's clock as well.
    pub fn set_time_us(&self, now_us: u64) {
        here::set_time_us(Some(now_us));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        here::set_time_us(None);
        #[cfg(feature = "redis")]
        here::set_dial(None);
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now_us", &now_us()).finish_non_exhaustive()
    }
}

/// Stands for the standard library's `RandomState`.
#[derive(Clone, Debug)]
pub(crate) enum RandomState {
    Random(hash::RandomState),
    OfWorld(u64),
}

impl Default for RandomState {
    fn default() -> Self {
        random().map_or_else(|| Self::Random(hash::RandomState::new()), Self::OfWorld)
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match self {
            Self::Random(state) => state.build_hasher(),
            Self::OfWorld(key) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*key);
                hasher
            }
        }
    }
}

/// Stands for foldhash's `fast::RandomState`.
#[derive(Clone, Debug)]
pub(crate) struct FastState(fast::SeedableRandomState);

impl Default for FastState {
    fn default() -> Self {
        Self(match random() {
            Some(key) => fast::SeedableRandomState::with_seed(key, SharedSeed::global_fixed()),
            None => fast::SeedableRandomState::random(),
        })
    }
}

impl BuildHasher for FastState {
    type Hasher = fast::FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::{
        clock::{Clock, SystemClock},
        hold::random_id,
    };

    #[test]
    fn a_world_gives_the_same_names_and_hashes_for_the_same_seed() {
        let draw = |seed| {
            let _world = World::enter(1, seed);
            (random_id(), RandomState::default().hash_one(7_u8), FastState::default().hash_one(7_u8))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // Outside of a world they are random.
        assert_ne!(random_id(), random_id());
    }

    #[test]
    fn the_time_of_a_world_is_what_the_test_sets_until_the_world_ends() {
        let world = World::enter(1_000_000, 1);
        assert_eq!(SystemClock.now_us(), 1_000_000);
        world.set_time_us(1_000_007);
        assert_eq!(SystemClock.now_us(), 1_000_007);
        drop(world);
        assert!(SystemClock.now_us() > 1_000_000_000_000);
    }
}
