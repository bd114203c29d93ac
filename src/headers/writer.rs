//! From a decision to fields.

use std::{slice, time::Duration};

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::{Fields, HeaderStyle, Quota, fields, ietf, jitter, report::Report, x_rate_limit};
use crate::decision::{Decision, PolicyDecision};

/// Writes the fields of a response.
///
/// # Examples
///
/// ```
/// use http::HeaderMap;
/// use tollgate::{HeaderStyle, Limiter, MemoryStore, Policy, headers::Writer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let decision = limiter.check("user:17", &Policy::per_minute("per-user", 60)?, 1).await?;
///
/// let mut headers = HeaderMap::new();
/// Writer::new(HeaderStyle::Draft11).write(&decision).apply(&mut headers);
/// assert_eq!(headers["ratelimit"], r#""per-user";r=59;t=60"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Writer {
    style: HeaderStyle,
    ratio_uncapped: bool,
    all_on_denial: bool,
    jitter: u32,
}

impl Writer {
    /// Creates a writer of one style.
    pub fn new(style: HeaderStyle) -> Self {
        Self { style, ..Self::default() }
    }

    /// Keeps `r / t` at or below the policy's own rate by a longer `t`.
    ///
    /// Defaults to `true`, for `r=90;t=5` would invite 18 requests a second from a client that may send 1.7 (draft-11,
    /// section 8.5).
    #[must_use]
    pub fn cap_ratio(self, cap: bool) -> Self {
        Self { ratio_uncapped: !cap, ..self }
    }

    /// Lists every policy in `RateLimit` on a denial, not only the violated ones.
    ///
    /// Defaults to `false`, for `Retry-After` should not point before the end of a window that is advertised.
    #[must_use]
    pub fn list_all_on_denial(self, all: bool) -> Self {
        Self { all_on_denial: all, ..self }
    }

    /// Makes waits longer by up to `most` seconds at random, so that clients which were told the same instant do not
    /// come back in the same second.
    ///
    /// `Retry-After` and the values that tell the same (`t`, a reset) grow by the same amount, and so does
    /// [`Denial::retry_after`](crate::rejection::Denial::retry_after); on an allowed response, `t` does where nothing is left.
    /// Never less than the wait, and never more than twice of it. In whole seconds, as `Retry-After` is, all equally
    /// likely. Defaults to 0, because then `Retry-After` is exact. Fixed windows, whose clients all wait for the same
    /// instant, are where it is needed.
    #[must_use]
    pub fn jitter_seconds(self, most: u32) -> Self {
        Self { jitter: most, ..self }
    }

    /// Writes the fields for a decision. Without a verdict of the store, there are none.
    pub fn write(&self, decision: &Decision) -> Fields {
        self.write_later(decision, self.jitter_of(decision))
    }

    /// Writes the fields for a decision into the headers of the response that it let through.
    pub(crate) fn apply(&self, decision: &Decision, headers: &mut HeaderMap) {
        self.apply_later(decision, self.jitter_of(decision), headers);
    }

    /// The same for either outcome, with waits longer by `jitter`.
    pub(crate) fn apply_later(&self, decision: &Decision, jitter: Duration, headers: &mut HeaderMap) {
        let (HeaderStyle::Draft11, [only @ PolicyDecision { partition_key: None, .. }], Some(now_us)) =
            (self.style, decision.policies(), decision.time_us())
        else {
            return self.write_later(decision, jitter).apply(headers);
        };
        // The common case goes without a set of fields in between: lists are appended to, whatever is there.
        let quota = Quota::from(only);
        let quotas = slice::from_ref(&quota);
        headers.append(ietf::RATELIMIT_POLICY, policy_header(only, quotas));
        let report = self.report(quotas, decision.is_allowed(), now_us, jitter);
        if report.allowed || self.all_on_denial || quota.violated {
            headers.append(ietf::RATELIMIT, ietf::draft_11_limit(&report, &quota));
        }
        if !report.allowed {
            fields::refuse(headers, report.retry_after());
        }
    }

    /// Writes the fields for quotas that were counted elsewhere, at `now_us` microseconds since the Unix epoch.
    pub fn write_quotas(&self, quotas: &[Quota<'_>], allowed: bool, now_us: u64) -> Fields {
        let jitter = self.draw(told_wait(quotas.iter().copied(), allowed));
        self.write_with(|| ietf::draft_11_policies(quotas), &self.report(quotas, allowed, now_us, jitter))
    }

    /// How much longer a client that has to wait is told to; always nothing without a wait.
    pub(crate) fn draw(&self, wait: Option<Duration>) -> Duration {
        match (self.jitter, wait) {
            (0, _) | (_, None) => Duration::ZERO,
            (most, Some(wait)) => jitter::draw(wait, most),
        }
    }

    fn jitter_of(&self, decision: &Decision) -> Duration {
        match self.jitter {
            0 => Duration::ZERO,
            _ => self.draw(told_wait(decision.policies().iter().map(Quota::from), decision.is_allowed())),
        }
    }

    fn write_later(&self, decision: &Decision, jitter: Duration) -> Fields {
        let Some(time_us) = decision.time_us() else { return Fields::new(self.style) };
        let quotas: SmallVec<[Quota<'_>; 1]> = decision.policies().iter().map(Quota::from).collect();
        let policies = || match decision.policies() {
            [only @ PolicyDecision { partition_key: None, .. }] => Some(policy_header(only, &quotas)),
            _ => ietf::draft_11_policies(&quotas),
        };
        self.write_with(policies, &self.report(&quotas, decision.is_allowed(), time_us, jitter))
    }

    fn write_with(&self, policies: impl FnOnce() -> Option<HeaderValue>, report: &Report<'_>) -> Fields {
        let mut fields = Fields::new(self.style);
        match self.style {
            HeaderStyle::Draft03 => ietf::draft_03(report, &mut fields),
            HeaderStyle::Draft06 => ietf::draft_06(report, &mut fields),
            HeaderStyle::Draft07 => ietf::draft_07(report, &mut fields),
            HeaderStyle::Draft11 => {
                if let Some(policies) = policies() {
                    fields.push(ietf::RATELIMIT_POLICY, policies);
                }
                if let Some(limits) = ietf::draft_11_limits(report, self.all_on_denial) {
                    fields.push(ietf::RATELIMIT, limits);
                }
            }
            HeaderStyle::EnvoyCompat => x_rate_limit::envoy(report, &mut fields),
            HeaderStyle::None => {}
            HeaderStyle::TowerGovernorCompat => x_rate_limit::tower_governor(report, &mut fields),
            HeaderStyle::XRateLimitDelta => x_rate_limit::delta(report, &mut fields),
            HeaderStyle::XRateLimitEpoch => x_rate_limit::epoch(report, &mut fields),
        }
        if !report.allowed {
            fields.refuse(report.retry_after());
        }
        fields
    }

    fn report<'a>(&self, quotas: &'a [Quota<'a>], allowed: bool, now_us: u64, jitter: Duration) -> Report<'a> {
        Report { quotas, allowed, now_us, cap_ratio: !self.ratio_uncapped, jitter }
    }
}

/// The longest wait that a response tells of.
fn told_wait<'a>(quotas: impl Iterator<Item = Quota<'a>>, allowed: bool) -> Option<Duration> {
    let wait = |quota: Quota<'a>| match allowed {
        true => quota.next.filter(|_| quota.remaining == 0),
        false => quota.retry_after.filter(|_| quota.violated),
    };
    quotas.filter_map(wait).max()
}

/// `RateLimit-Policy` of one policy without a partition key: the same value every time.
fn policy_header(decision: &PolicyDecision, quotas: &[Quota<'_>]) -> HeaderValue {
    let write = || ietf::draft_11_policies(quotas).expect("a policy's name is a Token, which headers can hold");
    decision.policy.derived(write)
}
