//! A simulated world around the current thread, for the tests in `tests/worlds`.
//!
//! In a world, time outside of tokio's clock, random numbers and connections come from the test, so that the same seed
//! gives the same run. Everything that the world drives runs on the thread that has entered it.

use std::hash::{self, BuildHasher, DefaultHasher, Hasher};
use std::{cell::Cell, fmt, marker::PhantomData};

use foldhash::{SharedSeed, fast};

#[cfg(feature = "redis")]
use std::{future::Future, io, pin::Pin};
#[cfg(feature = "redis")]
use tokio::io::{AsyncRead, AsyncWrite};

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
        set_time_us(Some(now_us));
        set_seed(seed);
        Self { here: PhantomData }
    }

    /// Sets what dials in place of TCP.
    #[cfg(feature = "redis")]
    pub fn with_dial(self, dial: Dial) -> Self {
        set_dial(Some(dial));
        self
    }

    /// Sets the time. The test moves tokio's clock as well.
    pub fn set_time_us(&self, now_us: u64) {
        set_time_us(Some(now_us));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        set_time_us(None);
        #[cfg(feature = "redis")]
        set_dial(None);
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

/// A byte stream in place of a TCP connection.
#[cfg(feature = "redis")]
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

#[cfg(feature = "redis")]
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A dial in progress.
#[cfg(feature = "redis")]
pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Dials a host and a port.
#[cfg(feature = "redis")]
pub type Dial = fn(&str, u16) -> Dialled;

thread_local! {
    static NOW_US: Cell<Option<u64>> = const { Cell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    #[cfg(feature = "redis")]
    static DIAL: Cell<Option<Dial>> = const { Cell::new(None) };
}

fn set_time_us(now_us: Option<u64>) {
    NOW_US.set(now_us);
}

fn set_seed(seed: u64) {
    RANDOM.set(seed);
}

#[cfg(feature = "redis")]
fn set_dial(dial: Option<Dial>) {
    DIAL.set(dial);
}

/// The time of this thread's world, in microseconds since the Unix epoch.
pub(crate) fn now_us() -> Option<u64> {
    NOW_US.get()
}

/// The next random number of this thread's world.
fn random() -> Option<u64> {
    now_us()?;
    // SplitMix64.
    let state = RANDOM.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// A dial in this thread's world.
#[cfg(feature = "redis")]
pub(crate) fn dial(host: &str, port: u16) -> Option<Dialled> {
    DIAL.get().map(|dial| dial(host, port))
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
