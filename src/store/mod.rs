//! Where counts live.
//!
//! [`MemoryStore`] keeps them in the process, `RedisStore` on a Redis that every instance
//! shares. Both give the same decisions for the same trace. Your own implements [`Store`].

mod ban;
mod contract;
#[cfg(feature = "redis")]
mod deny_cache;
#[cfg(feature = "test-util")]
mod failing;
mod memory;
mod pending;
#[cfg(feature = "redis")]
pub(crate) mod redis;

#[cfg(feature = "test-util")]
pub use self::failing::FailingStore;
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
pub use self::{
    contract::{Answer, Store},
    memory::{MemoryStore, WhenFull},
    pending::Pending,
};
pub use crate::{
    check::{Charge, Check},
    verdict::{Outcome, Verdict},
};
