//! The fields that tell a client where it stands.
//!
//! One arithmetic for all styles ([`Quota`]), one file per family of spellings. The default is the format of
//! draft-ietf-httpapi-ratelimit-headers-11; a draft may still change, so its number is in the name.

mod fields;
mod ietf;
mod line;
mod x_rate_limit;

use std::{slice, time::Duration};

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

pub use self::fields::Fields;
use crate::decision::{Decision, PolicyDecision};

/// How the limit's state is spelt in response headers.
///
/// `Retry-After` and `Cache-Control: no-store` on a denial are published standards and sent in every style.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy` of draft-ietf-httpapi-ratelimit-headers-06.
    Draft06,
    /// `RateLimit: limit=, remaining=, reset=` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-07.
    Draft07,
    /// `RateLimit: "name";r=;t=` and `RateLimit-Policy: "name";q=;w=` of draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Draft11,
    /// No fields.
    None,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now.
    XRateLimitDelta,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds since the Unix epoch, as on GitHub.
    XRateLimitEpoch,
}

/// Where one quota stands, as headers tell it.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    /// The policy's name.
    pub name: &'a str,
    /// `q`: units per window.
    pub limit: u64,
    /// `w`: the window, if there is one.
    pub window: Option<Duration>,
    /// `qu`: the unit, if it is not requests.
    pub unit: Option<&'a str>,
    /// `r`: units left.
    pub remaining: u64,
    /// Until more becomes available, if known.
    pub next: Option<Duration>,
    /// Until all of it is available again, if known.
    pub reset: Option<Duration>,
    /// Until the refused request passes; `None` if it was not refused or can never pass.
    pub retry_after: Option<Duration>,
    /// Whether the request was denied because of this quota.
    pub violated: bool,
}

impl<'a> From<&'a PolicyDecision> for Quota<'a> {
    fn from(decision: &'a PolicyDecision) -> Self {
        let PolicyDecision { policy, violated, available, retry_after, next, reset, .. } = decision;
        Self {
            name: policy.name(),
            limit: policy.limit().into(),
            window: Some(policy.window()),
            unit: None,
            remaining: (*available).into(),
            next: Some(*next),
            reset: Some(*reset),
            retry_after: *retry_after,
            violated: *violated,
        }
    }
}

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

    /// Writes the fields for a decision. Without a verdict of the store, there are none.
    pub fn write(&self, decision: &Decision) -> Fields {
        let Some(time_us) = decision.time_us() else { return Fields::new(self.style) };
        let quotas: SmallVec<[Quota<'_>; 1]> = decision.policies().iter().map(Quota::from).collect();
        let policies = || match decision.policies() {
            [only] => Some(policy_header(only, &quotas)),
            _ => ietf::draft_11_policies(&quotas),
        };
        self.write_with(policies, &quotas, decision.is_allowed(), time_us)
    }

    /// Writes the fields for a decision into a response's headers.
    pub(crate) fn apply(&self, decision: &Decision, headers: &mut HeaderMap) {
        let (HeaderStyle::Draft11, [only], Some(now_us)) = (self.style, decision.policies(), decision.time_us()) else {
            return self.write(decision).apply(headers);
        };
        // The common case goes without a set of fields in between: lists are appended to, whatever is there.
        let quota = Quota::from(only);
        let quotas = slice::from_ref(&quota);
        headers.append(ietf::RATELIMIT_POLICY, policy_header(only, quotas));
        let report = self.report(quotas, decision.is_allowed(), now_us);
        if report.allowed || self.all_on_denial || quota.violated {
            headers.append(ietf::RATELIMIT, ietf::draft_11_limit(&report, &quota));
        }
        if !report.allowed {
            fields::refuse(headers, report.retry_after());
        }
    }

    /// Writes the fields for quotas that were counted elsewhere, at `now_us` microseconds since the Unix epoch.
    pub fn write_quotas(&self, quotas: &[Quota<'_>], allowed: bool, now_us: u64) -> Fields {
        self.write_with(|| ietf::draft_11_policies(quotas), quotas, allowed, now_us)
    }

    fn write_with(
        &self,
        draft_11_policies: impl FnOnce() -> Option<HeaderValue>,
        quotas: &[Quota<'_>],
        allowed: bool,
        now_us: u64,
    ) -> Fields {
        let mut fields = Fields::new(self.style);
        let report = self.report(quotas, allowed, now_us);
        match self.style {
            HeaderStyle::Draft06 => ietf::draft_06(&report, &mut fields),
            HeaderStyle::Draft07 => ietf::draft_07(&report, &mut fields),
            HeaderStyle::Draft11 => {
                if let Some(policies) = draft_11_policies() {
                    fields.push(ietf::RATELIMIT_POLICY, policies);
                }
                if let Some(limits) = ietf::draft_11_limits(&report, self.all_on_denial) {
                    fields.push(ietf::RATELIMIT, limits);
                }
            }
            HeaderStyle::None => {}
            HeaderStyle::XRateLimitDelta => x_rate_limit::delta(&report, &mut fields),
            HeaderStyle::XRateLimitEpoch => x_rate_limit::epoch(&report, &mut fields),
        }
        if !allowed {
            fields.refuse(report.retry_after());
        }
        fields
    }

    fn report<'a>(&self, quotas: &'a [Quota<'a>], allowed: bool, now_us: u64) -> Report<'a> {
        Report { quotas, allowed, now_us, cap_ratio: !self.ratio_uncapped }
    }
}

/// The fields of a refusal that no quota is behind.
pub(crate) fn refuse(headers: &mut HeaderMap, retry_after: Option<Duration>) {
    fields::refuse(headers, retry_after.map(whole_seconds));
}

/// `RateLimit-Policy` of one policy: the same value every time.
fn policy_header(decision: &PolicyDecision, quotas: &[Quota<'_>]) -> HeaderValue {
    let write = || ietf::draft_11_policies(quotas).expect("a policy's name is a Token, which headers can hold");
    decision.policy.header(write).clone()
}

/// What a response has to tell, with the arithmetic that all styles share.
struct Report<'a> {
    quotas: &'a [Quota<'a>],
    allowed: bool,
    now_us: u64,
    cap_ratio: bool,
}

impl Report<'_> {
    /// Whole seconds until the refused request passes; `None` if it was allowed or never will.
    fn retry_after(&self) -> Option<u64> {
        let mut waits = self.quotas.iter().filter(|quota| quota.violated).map(|quota| quota.retry_after);
        let first = waits.next()??;
        let longest = waits.try_fold(first, |longest, wait| wait.map(|wait| longest.max(wait)))?;
        Some(whole_seconds(longest))
    }

    /// `t`, the effective window: for so many seconds the client can use no more than `remaining`.
    fn effective_window(&self, quota: &Quota<'_>) -> Option<u64> {
        let mut seconds = seconds_up(quota.next?);
        if let Some(window) = quota.window.filter(|_| self.cap_ratio && quota.remaining > 0 && quota.limit > 0) {
            seconds = seconds.max(paced_seconds(quota.remaining, window, quota.limit));
        }
        match self.retry_after() {
            Some(retry_after) if quota.violated => Some(seconds.max(1).min(retry_after)),
            _ => Some(seconds),
        }
    }

    /// The one quota of styles that tell a single one: the longest wait on a denial, otherwise the least left.
    fn selected(&self) -> Option<&Quota<'_>> {
        let window = |quota: &Quota<'_>| quota.window.unwrap_or(Duration::MAX);
        if self.allowed {
            self.quotas.iter().min_by_key(|quota| (quota.remaining, std::cmp::Reverse(window(quota))))
        } else {
            // `rev`, because of equals `max_by_key` takes the last.
            let wait = |quota: &Quota<'_>| quota.retry_after.unwrap_or(Duration::MAX);
            self.quotas.iter().rev().filter(|quota| quota.violated).max_by_key(|quota| wait(quota))
        }
    }
}

/// How long `units` last at the rate of `limit` per `window`, rounded up.
fn paced_seconds(units: u64, window: Duration, limit: u64) -> u64 {
    // Nearly always: wide division is several times as slow.
    let narrow = u64::try_from(window.as_micros()).ok().and_then(|window| window.checked_mul(units));
    if let (Some(paced), Some(rate)) = (narrow, limit.checked_mul(1_000_000)) {
        return paced.div_ceil(rate);
    }
    let paced = u128::from(units).saturating_mul(window.as_micros());
    u64::try_from(paced.div_ceil(u128::from(limit) * 1_000_000)).unwrap_or(u64::MAX)
}

/// Rounded up: a client that waits so long is not early.
fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// `Retry-After`: at least 1, for 0 makes clients hammer, and at most what a signed 32-bit integer holds.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    seconds_up(wait).clamp(1, 2_147_483_647)
}
