//! The keys of callers.

use crate::plan::mode::Mode;

/// The number of keys of a mode.
pub(crate) const KEYS: u64 = 3;
/// The number of second keys of a mode.
pub(crate) const SECOND_KEYS: u64 = 9;
/// The first of the keys that one caller has for itself.
pub(crate) const LONE: u64 = 1_000_000;

pub(crate) fn key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-{key}")
}

pub(crate) fn second_key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-second-{key}")
}
