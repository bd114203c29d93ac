//! The counters of the quota service.

use metrics::{Counter, Gauge, counter, gauge};

#[derive(Debug)]
pub(super) struct QuotaMeters {
    pub(super) streams: Gauge,
    pub(super) blocks: Counter,
    pub(super) late: Counter,
    pub(super) units: Counter,
    pub(super) unused: Counter,
    pub(super) refused: [Counter; 4],
}

/// Why a bucket gets nothing, whatever is left of its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    Entries,
    NoRule,
    NoLease,
    Full,
}

impl Reason {
    const WORDS: [&'static str; 4] = ["entries", "no_rule", "no_lease", "full"];
}

impl QuotaMeters {
    pub(super) fn new() -> Self {
        let refused = |reason: &'static str| counter!("tollgate_envoy_quota_refused_total", "reason" => reason);
        Self {
            streams: gauge!("tollgate_envoy_quota_streams"),
            blocks: counter!("tollgate_envoy_quota_blocks_total"),
            late: counter!("tollgate_envoy_quota_late_blocks_total"),
            units: counter!("tollgate_envoy_quota_units_total"),
            unused: counter!("tollgate_envoy_quota_unused_units_total"),
            refused: Reason::WORDS.map(refused),
        }
    }

    pub(super) fn refuse(&self, reason: Reason) {
        self.refused[reason as usize].increment(1);
    }
}
