//! The requests of the last two hours, for the question what a stricter limit would have refused. They are kept from
//! the first look at the page until nobody has looked for two hours.

use std::collections::VecDeque;

use tollgate::clock::{Clock, SystemClock};
use tollgate::observe::{Event, Fingerprint};
use tollgate::{Policy, decision::Source};

pub(super) const HOUR_US: u64 = 3_600_000_000;
/// The hour that is judged, and the one before it, because its requests count in the first windows of the other.
const KEPT_US: u64 = 2 * HOUR_US;
/// Requests that are kept, of all policies together: 5 MB.
pub(super) const MOST_REQUESTS: usize = 100_000;

/// A request that a policy has admitted or refused.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) at_us: u64,
    pub(super) key: Fingerprint,
    pub(super) cost: u64,
    pub(super) is_refused: bool,
}

#[derive(Default)]
pub(super) struct History {
    requests: VecDeque<(Policy, Request)>,
    /// Older requests are not here: they came before the first look, or made room for others.
    complete_from_us: u64,
    last_us: u64,
    /// When recording ends; `None` while there are viewers.
    ends_us: Option<u64>,
}

/// The requests of one policy.
pub(super) struct Judged {
    /// The latest version of the policy that has judged one of them.
    pub(super) policy: Option<Policy>,
    pub(super) requests: Vec<Request>,
    /// Older ones may be missing.
    pub(super) complete_from_us: u64,
}

impl History {
    /// A history whose requests are those from now on.
    pub(super) fn from_now() -> Self {
        let now_us = SystemClock.now_us();
        Self { complete_from_us: now_us, last_us: now_us, ..Self::default() }
    }

    /// Records on: there is a viewer.
    pub(super) fn keep(&mut self) {
        self.ends_us = None;
    }

    /// The last viewer has gone away at this time.
    pub(super) fn end_after(&mut self, now_us: u64) {
        self.ends_us = Some(now_us + KEPT_US);
    }

    pub(super) fn has_ended(&self, now_us: u64) -> bool {
        self.ends_us.is_some_and(|end| end < now_us)
    }

    /// The time of an event: no two have the same, so it is also what the page calls its request.
    pub(super) fn next_time(&mut self) -> u64 {
        self.last_us = SystemClock.now_us().max(self.last_us + 1);
        self.last_us
    }

    /// Keeps what the policies of a check have answered. `keys` are those of its charges.
    pub(super) fn record(&mut self, at_us: u64, event: &Event<'_>, keys: &[Fingerprint]) {
        let Some(decision) = event.decision().filter(|decision| is_by_limit(decision.source())) else { return };
        for (((_, policy, cost), standing), key) in event.charges().zip(decision.policies()).zip(keys) {
            let is_refused = standing.violated || standing.would_deny;
            // What another policy has refused was not charged to this one.
            if is_replayable(policy) && (is_refused || decision.is_allowed()) {
                self.push(policy, Request { at_us, key: *key, cost, is_refused });
            }
        }
    }

    fn push(&mut self, policy: &Policy, request: Request) {
        while let Some((_, oldest)) = self.requests.front() {
            let is_too_many = self.requests.len() >= MOST_REQUESTS;
            if !is_too_many && oldest.at_us + KEPT_US > request.at_us {
                break;
            }
            if is_too_many {
                self.complete_from_us = oldest.at_us;
            }
            self.requests.pop_front();
        }
        self.requests.push_back((policy.clone(), request));
    }

    /// The requests that the policy of this name has judged.
    pub(super) fn judged_by(&self, name: &str) -> Judged {
        let of_policy = || self.requests.iter().filter(|(policy, _)| policy.name() == name);
        Judged {
            policy: of_policy().next_back().map(|(policy, _)| policy.clone()),
            requests: of_policy().map(|(_, request)| *request).collect(),
            complete_from_us: self.complete_from_us,
        }
    }
}

/// Whether counts have decided, and no failure policy.
fn is_by_limit(source: Source) -> bool {
    matches!(source, Source::Store | Source::DenyCache | Source::Lease)
}

/// Units that are held are settled later, so their cost is not known yet. Slots and calendars have no window.
pub(super) fn is_replayable(policy: &Policy) -> bool {
    policy.window().is_some() && policy.holds().is_none()
}
