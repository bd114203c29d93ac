//! What a policy is made of.

use std::{
    fmt,
    hash::BuildHasher,
    sync::{Arc, OnceLock},
    time::Duration,
};

use foldhash::fast::FixedState;

use super::{Algorithm, Policy, Shared};
use crate::key::partition::PartitionKeys;

/// All that its owner has said.
#[derive(Clone, PartialEq)]
pub(super) struct Definition {
    pub(super) name: Box<str>,
    pub(super) limit: u32,
    pub(super) window: u64,
    pub(super) algorithm: Algorithm,
    pub(super) resolution: u64,
    pub(super) burst: u32,
    pub(super) count_rejected: bool,
    /// `None` for requests, which need not be told.
    pub(super) unit: Option<Box<str>>,
    pub(super) partition_keys: Option<PartitionKeys>,
    /// Denials, and microseconds.
    pub(super) ban: Option<(u32, u64)>,
    /// What it counts are another policy's denials.
    pub(super) is_ban: bool,
}

impl From<Definition> for Policy {
    fn from(definition: Definition) -> Self {
        let name_hash = FixedState::default().hash_one((&definition.name, definition.form()));
        let ban = definition.ban_definition().map(Self::from);
        Self(Arc::new(Shared { definition, name_hash, ban, derived: OnceLock::new() }))
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.definition == other.0.definition
    }
}

impl Definition {
    pub(super) fn form(&self) -> (Algorithm, u64, u64) {
        (self.algorithm, self.window, self.resolution)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Definition {
            name,
            limit,
            window,
            algorithm,
            resolution,
            burst,
            count_rejected,
            unit,
            partition_keys,
            ban,
            is_ban: _,
        } = &self.0.definition;
        f.debug_struct("Policy")
            .field("name", name)
            .field("limit", limit)
            .field("window", &Duration::from_micros(*window))
            .field("algorithm", algorithm)
            .field("resolution", &Duration::from_micros(*resolution))
            .field("burst", burst)
            .field("count_rejected", count_rejected)
            .field("unit", unit)
            .field("partition_keys", partition_keys)
            .field("ban", &ban.map(|(denials, duration)| (denials, Duration::from_micros(duration))))
            .finish()
    }
}

pub(super) fn micros_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// A Token (RFC 9651, section 3.3.4) is also a String without escapes.
pub(super) fn is_token(name: &str) -> bool {
    let tail = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*') && name.chars().all(tail)
}
