//! Counters through the `metrics` facade. No label has a value of a request, except those that a rule asks for.

use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::{collections::HashMap, fmt};

use metrics::{Counter, Gauge, counter, gauge};

/// What became of a descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    Ok,
    OverLimit,
    /// A rule in shadow mode did not have the units.
    WouldBeOver,
    /// The store has given no verdict.
    Unanswered,
}

impl Outcome {
    const WORDS: [&'static str; 4] = ["ok", "over_limit", "would_be_over", "unanswered"];
}

/// The counters of one rule, one for each outcome.
type Outcomes = [Counter; 4];

/// The counters of a rule.
pub(crate) struct RuleMeters {
    domain: String,
    rule: String,
    outcomes: Outcomes,
    /// The counters by the values of requests, if the rule has detailed metrics.
    details: Mutex<HashMap<String, Outcomes>>,
    /// The counters of further values.
    other: OnceLock<Outcomes>,
}

/// The counters of rules by domain and name.
type Rules = HashMap<(String, String), Arc<RuleMeters>>;

/// The recorder of the process never forgets a counter, so a rule keeps its own when the configuration is read again.
static RULES: LazyLock<Mutex<Rules>> = LazyLock::new(Mutex::default);

impl RuleMeters {
    /// The most values that one rule has in metrics, and the longest. Others count as `other`.
    const MOST_DETAILS: usize = 1_000;
    const LONGEST_DETAIL: usize = 128;

    pub(crate) fn of(domain: &str, rule: &str) -> Arc<Self> {
        let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
        let meters = rules.entry((domain.to_owned(), rule.to_owned())).or_insert_with(|| {
            let outcomes = outcomes(domain, rule);
            let (domain, rule) = (domain.to_owned(), rule.to_owned());
            Arc::new(Self { domain, rule, outcomes, details: Mutex::default(), other: OnceLock::new() })
        });
        Arc::clone(meters)
    }

    pub(crate) fn count(&self, outcome: Outcome, detail: Option<&str>) {
        let Some(detail) = detail else { return self.outcomes[outcome as usize].increment(1) };
        let mut details = self.details.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = details.len() >= Self::MOST_DETAILS && !details.contains_key(detail);
        if is_full || detail.len() > self.rule.len() + Self::LONGEST_DETAIL {
            let other = self.other.get_or_init(|| outcomes(&self.domain, &format!("{}.other", self.rule)));
            return other[outcome as usize].increment(1);
        }
        let counters = details.entry(detail.to_owned()).or_insert_with(|| outcomes(&self.domain, detail));
        counters[outcome as usize].increment(1);
    }
}

fn outcomes(domain: &str, rule: &str) -> Outcomes {
    Outcome::WORDS.map(|outcome| {
        let (domain, rule) = (domain.to_owned(), rule.to_owned());
        counter!("tollgate_envoy_descriptors_total", "domain" => domain, "rule" => rule, "outcome" => outcome)
    })
}

impl fmt::Debug for RuleMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleMeters").field("rule", &self.rule).finish_non_exhaustive()
    }
}

/// The counters of the service.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) calls_ok: Counter,
    pub(crate) calls_over_limit: Counter,
    pub(crate) calls_unavailable: Counter,
    pub(crate) calls_invalid: Counter,
    pub(crate) unmatched: Counter,
    pub(crate) open_holds: Gauge,
    pub(crate) settled: Counter,
    pub(crate) settled_late: Counter,
    pub(crate) settled_unanswered: Counter,
    pub(crate) settled_unknown: Counter,
    pub(crate) holds_expired: Counter,
    pub(crate) holds_full: Counter,
}

impl Meters {
    pub(crate) fn new() -> Self {
        let calls = |outcome: &'static str| counter!("tollgate_envoy_calls_total", "outcome" => outcome);
        let settlements = |hold: &'static str| counter!("tollgate_envoy_settlements_total", "hold" => hold);
        Self {
            calls_ok: calls("ok"),
            calls_over_limit: calls("over_limit"),
            calls_unavailable: calls("unavailable"),
            calls_invalid: calls("invalid"),
            unmatched: counter!("tollgate_envoy_unmatched_descriptors_total"),
            open_holds: gauge!("tollgate_envoy_open_holds"),
            settled: settlements("settled"),
            settled_late: settlements("expired"),
            settled_unanswered: settlements("unanswered"),
            settled_unknown: settlements("unknown"),
            holds_expired: counter!("tollgate_envoy_expired_holds_total"),
            holds_full: counter!("tollgate_envoy_full_holds_total"),
        }
    }
}
