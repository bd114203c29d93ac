//! The keys of callers.

use std::cell::Cell;

use crate::plan::mode::Mode;

/// The number of keys of a mode.
pub(crate) const KEYS: u64 = 3;
/// The number of second keys of a mode.
pub(crate) const SECOND_KEYS: u64 = 9;
/// The first of the keys that one caller has for itself.
pub(crate) const LONE: u64 = 1_000_000;

/// The first of the counts of keys under the second of two policies.
pub(crate) const ALTERNATIVE: u64 = 100;

/// The number of keys of calls that have a policy each.
pub(crate) const TOLD_KEYS: u64 = 9;

thread_local! {
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// The number of a call that no other one of this world has.
pub(crate) fn next_told() -> u64 {
    TOLD.set(TOLD.get() + 1);
    TOLD.get()
}

/// Starts these numbers anew.
pub(crate) fn forget_told() {
    TOLD.set(0);
}

pub(crate) fn key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-{key}")
}

pub(crate) fn second_key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-second-{key}")
}
