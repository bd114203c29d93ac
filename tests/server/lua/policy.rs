//! Policies and usages in the numbers of the protocol.

/// The algorithms, in the numbers of the protocol.
pub(crate) const SLIDING_WINDOW_LOG: u8 = 1;
pub(crate) const SLIDING_WINDOW_COUNTER: u8 = 2;
pub(crate) const FIXED_WINDOW: u8 = 3;
pub(crate) const TOKEN_BUCKET: u8 = 4;

/// The usages of a policy, in the numbers of the protocol.
pub(crate) const COMMIT: u8 = 0;
pub(crate) const COUNT_REJECTED: u8 = 1;
pub(crate) const EVALUATE: u8 = 2;
pub(crate) const REFUND: u8 = 4;
pub(crate) const BAN_BY_HAND: u8 = 34;
pub(crate) const UNBAN: u8 = 35;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) algorithm: u8,
    pub(crate) limit: u64,
    pub(crate) window_us: u64,
    /// The log's resolution or the bucket's burst.
    pub(crate) parameter: u64,
}

impl Policy {
    /// An exact log.
    pub(crate) fn log(limit: u64, window_us: u64) -> Self {
        Self { algorithm: SLIDING_WINDOW_LOG, limit, window_us, parameter: 1 }
    }

    pub(crate) fn packed(&self, usage: u8) -> Vec<u8> {
        // A counter has no parameter, and neither has a window that no calendar bounds.
        let has_parameter = [SLIDING_WINDOW_LOG, TOKEN_BUCKET].contains(&self.algorithm);
        let parameter = if has_parameter { self.parameter } else { 0 };
        let doubles = [self.limit, self.window_us, parameter].map(|number| (number as f64).to_le_bytes()).concat();
        [&[self.algorithm, usage][..], &doubles].concat()
    }

    /// The largest cost that ever fits.
    pub(crate) fn capacity(&self) -> u64 {
        if self.algorithm == TOKEN_BUCKET { self.parameter } else { self.limit }
    }
}
