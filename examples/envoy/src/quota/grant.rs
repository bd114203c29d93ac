//! How the store gives a block.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::limiter::{Hold, HoldAnswer};
use tollgate::{Decision, Error, ErrorKind, FailurePolicy, Key, policy::HoldSettings};

use super::assignment::{IDLE_TTL, MARGIN, TTL};
use crate::{call::Judge, config::rule::Limit};

/// The units that an Envoy may spend.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) hold: Hold,
    /// Who is charged.
    pub(super) key: Key,
    pub(super) units: u64,
    /// What the Envoy has reported.
    pub(super) used: u64,
    /// How long the Envoy may spend it, from when it receives it.
    pub(super) ttl: Duration,
    /// From before the hold was made.
    pub(super) made: Instant,
}

impl Block {
    /// When no Envoy spends it any more.
    pub(super) fn end(&self) -> Instant {
        self.made + self.ttl + MARGIN
    }
}

/// Who is charged for a block, and how large it may be.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) key: Key,
    pub(super) limit: Limit,
    /// The largest block.
    pub(super) lease: u64,
}

/// The store's answer.
#[derive(Debug)]
pub(super) enum Grant {
    Held(Box<Block>),
    /// No unit is left; there may be one after this time.
    Denied(Option<Duration>),
    /// The store has given no verdict. The failure policy lets everything pass.
    Open,
    /// The store has given no verdict, or the setup is wrong: nothing passes.
    Refused,
}

impl Grant {
    fn without_verdict(error: &Error, on_failure: FailurePolicy) -> Self {
        match (error.kind(), on_failure) {
            // More calls than the store judges, or a wrong setup, is no outage.
            (ErrorKind::InvalidCall | ErrorKind::Overloaded, _) => Self::Refused,
            (_, FailurePolicy::Open) => Self::Open,
            _ => Self::Refused,
        }
    }
}

impl Account {
    /// Holds a block of at most `wanted` units; one unit is for an idle Envoy. For a new stream, `leftover` is what
    /// others still hold that have ended.
    pub(super) async fn grant(&self, judge: &Judge, wanted: u64, leftover: u64) -> Grant {
        let on_failure = self.limit.settings.on_store_failure;
        self.hold(judge, wanted, leftover).await.unwrap_or_else(|error| Grant::without_verdict(&error, on_failure))
    }

    async fn hold(&self, judge: &Judge, wanted: u64, leftover: u64) -> Result<Grant, Error> {
        let ttl = if wanted > 1 { TTL } else { IDLE_TTL };
        // A block is settled with a report after the one that has replaced it.
        let holds = HoldSettings::new().with_ttl(ttl + TTL + MARGIN);
        let policy = self.limit.policy.clone().with_holds(holds);
        let is_local = judge.has_fallback && self.limit.settings.on_store_failure == FailurePolicy::Local;
        let mut units = wanted.min(self.lease).max(1);
        if units > 1 {
            let asked = judge.limiter.peek(self.key.clone(), &policy);
            let decision = if is_local { asked.fail_local() } else { asked }.await?;
            match decision.available().unwrap_or_default() {
                0 => return Ok(Self::denied(&decision)),
                // An Envoy that connects again and again leaves the rest to others.
                available if available <= leftover => units = 1,
                // Room for others; the last units one by one.
                available => units = units.min(available.div_ceil(2)),
            }
        }
        let made = Instant::now();
        let hold = judge.limiter.hold(self.key.clone(), &policy, units);
        Ok(match if is_local { hold.fail_local() } else { hold }.await? {
            HoldAnswer::Open(hold) => {
                Grant::Held(Box::new(Block { hold, key: self.key.clone(), units, used: 0, ttl, made }))
            }
            HoldAnswer::Denied(decision) => Self::denied(&decision),
        })
    }

    fn denied(decision: &Decision) -> Grant {
        Grant::Denied(decision.retry_after())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outage_lets_everything_pass() {
        let passes = |kind, on_failure| {
            matches!(Grant::without_verdict(&Error::new(kind, "no verdict"), on_failure), Grant::Open)
        };
        assert!(passes(ErrorKind::Deadline, FailurePolicy::Open));
        assert!(!passes(ErrorKind::Deadline, FailurePolicy::Closed));
        for kind in [ErrorKind::Overloaded, ErrorKind::InvalidCall] {
            assert!(!passes(kind, FailurePolicy::Open), "{kind:?}");
        }
    }
}
