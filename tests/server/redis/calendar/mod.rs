//! Calendar windows on Redis: which window a check is in, by the server's clock and whatever the client's clock says.

mod boundary;
mod stale;
mod zones;

use std::time::{Duration, UNIX_EPOCH};

use tollgate::{Calendar, Policy};

/// A policy whose windows begin at this time of its day of each month, in microseconds since the Unix epoch.
fn anchored(limit: u64, start_us: u64) -> Policy {
    let calendar = Calendar::anchored(UNIX_EPOCH + Duration::from_micros(start_us));
    Policy::calendar("billing", limit, calendar).unwrap()
}
