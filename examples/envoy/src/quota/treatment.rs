//! What the configuration says about a bucket.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

use super::{grant::Account, meters::Reason};
use crate::config::Config;

/// The most entries of a bucket: all orders of them are tried.
const MOST_ENTRIES: usize = 8;
/// The most bytes of a bucket's entries, which the map of a stream keeps.
const LONGEST: usize = 1_024;

#[derive(Debug)]
pub(super) enum Treatment {
    /// The Envoy spends blocks.
    Blocks(Account),
    /// All requests pass. A rule in shadow mode counts them.
    Pass(Option<Account>),
    /// No request passes. Without a reason, the rule says so.
    Refuse(Option<Reason>),
}

impl Treatment {
    pub(super) fn of(config: &Config, domain: &str, entries: &[(String, String)]) -> Self {
        let length: usize = entries.iter().map(|(key, value)| key.len() + value.len()).sum();
        if entries.len() > MOST_ENTRIES || length > LONGEST {
            return Self::Refuse(Some(Reason::Entries));
        }
        let entry = |(key, value): &(String, String)| Entry { key: key.clone(), value: value.clone() };
        let entries: Vec<Entry> = entries.iter().map(entry).collect();
        let Some(found) = config.find_in_any_order(domain, &entries) else {
            return Self::Refuse(Some(Reason::NoRule));
        };
        let Some(limit) = found.rule.limit.clone() else { return Self::Pass(None) };
        let has_units = limit.shown.requests_per_unit > 0;
        let is_counted = has_units && !limit.settings.is_concurrent;
        let is_shadow = found.rule.shadow_mode;
        let lease = limit.settings.lease;
        let account = Account { key: found.key, limit, lease: lease.unwrap_or_default() };
        match lease {
            _ if is_shadow => Self::Pass(is_counted.then_some(account)),
            _ if !has_units => Self::Refuse(None),
            Some(_) => Self::Blocks(account),
            None => Self::Refuse(Some(Reason::NoLease)),
        }
    }
}

impl Reason {
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Entries => "a bucket has at most 8 entries and 1024 bytes; build it from fewer or shorter ones",
            Self::NoRule => "no rule has these entries; write one, or remove the bucket from Envoy",
            Self::NoLease => "their rule has no lease, the largest block of an Envoy; write one",
            Self::Full => "an Envoy has too many of them; use values that clients cannot make up",
        }
    }
}
