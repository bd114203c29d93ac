//! Judges what was admitted in each millisecond by the clock of Redis.

use std::time::Duration;

pub struct Judged {
    /// Units over the limit in the fullest window.
    pub over: f64,
    /// The part of the limit that is unused at a window's end, on average after the first window.
    pub unused: f64,
}

/// `admitted` has the units of each millisecond.
pub fn judge(admitted: &[u64], limit: u64, window: Duration, time: Duration) -> Judged {
    let width = window.as_millis() as usize;
    let end = admitted.len().min(time.as_millis() as usize);
    let (mut inside, mut most) = (0, 0);
    let (mut sum, mut windows) = (0.0, 0.0);
    for (at, units) in admitted.iter().enumerate() {
        // All units of so many milliseconds are in one window.
        inside += units;
        if at >= width {
            inside -= admitted[at - width];
        }
        most = most.max(inside);
        if at >= width && at < end {
            sum += inside as f64;
            windows += 1.0;
        }
    }
    let limit = limit as f64;
    Judged { over: (most as f64 - limit).max(0.0), unused: 1.0 - sum / f64::max(windows, 1.0) / limit }
}
