//! Hashers whose keys come from the world's seed. Outside of a world they are as random as those that they replace.

use std::hash::{self, BuildHasher, DefaultHasher, Hasher};

use foldhash::{SharedSeed, fast};

use super::here::random;

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
