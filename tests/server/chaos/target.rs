//! The Redis of a scenario.

use crate::report::Keys;

/// The Redis that the workers use and the fault breaks.
pub(crate) trait Target {
    /// The address in the format of [`worker::connect`](crate::worker::connect).
    fn address(&self) -> String;

    /// Waits for the end of the fault; returns the time at which Redis served all keys again.
    fn serves_again_us(&self) -> u64;

    /// The keys that the fault makes unavailable.
    fn affected_keys(&self) -> Keys {
        Keys::ALL
    }

    /// Cleans up after recovery.
    fn restore(&mut self) {}

    /// The time at which a master was killed whose replica takes over.
    fn killed_us(&self) -> Option<u64> {
        None
    }
}
