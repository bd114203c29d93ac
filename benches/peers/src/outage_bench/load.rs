//! The load, and the times of the outage.

use std::time::Duration;

/// The policy: 100 units a second, in windows as short as a slice, so that each slice shows the rate.
pub const LIMIT: u64 = 10;
pub const WINDOW: Duration = SLICE;
/// The client sends 250 requests a second.
pub const BETWEEN_REQUESTS: Duration = Duration::from_millis(4);
/// Instances of the service, for the share under `fail_local`. One of them runs.
pub const INSTANCES: u32 = 2;
/// Requests are counted in slices of this length.
pub const SLICE: Duration = Duration::from_millis(100);

/// The times at which Redis freezes and comes back, and the end.
#[derive(Clone, Copy)]
pub struct Times {
    pub frozen: Duration,
    pub back: Duration,
    pub end: Duration,
}
