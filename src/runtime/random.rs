//! The one source of random numbers, and of hashers and maps with random keys. In a simulated world, all of them come
//! from its seed.

use std::{collections::HashMap, hash::BuildHasher};

pub(crate) use super::world::{FastState, RandomState};

/// A map whose order comes from [`RandomState`].
pub(crate) type RandomMap<K, V> = HashMap<K, V, RandomState>;

/// A random number, which no client can foresee. Each `RandomState` has new keys.
pub(crate) fn number() -> u64 {
    RandomState::default().hash_one(0_u8)
}
