//! What was admitted within a window, by the clock of this process.

use std::time::{Duration, Instant};

/// When a unit was asked for, and when it had been admitted.
pub type Admitted = (Instant, Instant);

/// The most units that were certainly admitted within one window.
pub fn most_within(window: Duration, admitted: &[Admitted]) -> usize {
    let mut admitted = admitted.to_vec();
    admitted.sort_unstable();
    let within = |first: usize| {
        let end = admitted[first].0 + window;
        admitted[first..].iter().take_while(|(sent, _)| *sent < end).filter(|(_, done)| *done < end).count()
    };
    (0..admitted.len()).map(within).max().unwrap_or(0)
}
