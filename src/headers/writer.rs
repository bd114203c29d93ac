//! The writer: turns a decision into response fields. Waits get a random jitter, so that clients do not all return in
//! the same second.

use std::slice;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

use super::fields::{self, AllowedFields, HeaderFields};
use super::jitter::{draw, longest_wait};
use super::quota::{QuotaReport, Snapshot};
use super::{RATELIMIT, RATELIMIT_POLICY, ietf, names::OwnNames, openai, style::HeaderStyle, x_rate_limit};
use crate::decision::{Decision, PolicyDecision};
use crate::{clock::micros, error::FirstMistake};

/// Writes the fields of a response.
///
/// Every layer writes its fields with a writer of its own. To change the options, pass another writer to
/// [`with_headers`](crate::RateLimitLayer::with_headers). Call a writer directly where no layer writes the
/// fields, for example after [`Limiter::check`](crate::Limiter::check).
///
/// # Examples
///
/// ```
/// use http::HeaderMap;
/// use tollgate::{
///     HeaderStyle, Limiter, MemoryStore, Policy, headers::HeaderWriter,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let decision =
///     limiter.check("user:17", &Policy::per_minute("per-user", 60)?, 1).await?;
///
/// let mut headers = HeaderMap::new();
/// HeaderWriter::new(HeaderStyle::Draft11).write(&decision, &mut headers);
/// assert_eq!(headers["ratelimit"], r#""per-user";r=59;t=60"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeaderWriter {
    pub(super) style: HeaderStyle,
    capped_ratio: bool,
    all_policies_on_denial: bool,
    retry_after_ms: bool,
    /// The largest jitter in seconds; 0 for no jitter.
    jitter: u32,
    pub(super) names: OwnNames,
    pub(super) mistake: FirstMistake,
}

/// Default `Retry-After` while the store cannot answer. Limits hold again within a second after the store is back.
pub(crate) const OUTAGE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The writer of a layer that sets none.
pub(crate) static DEFAULT: HeaderWriter = HeaderWriter::of(HeaderStyle::Draft11);

impl Default for HeaderWriter {
    /// A writer of [`HeaderStyle::Draft11`].
    fn default() -> Self {
        Self::new(HeaderStyle::default())
    }
}

/// A writer of one style, with the default options.
impl From<HeaderStyle> for HeaderWriter {
    fn from(style: HeaderStyle) -> Self {
        Self::new(style)
    }
}

impl HeaderWriter {
    /// Creates a writer of one style, with the default options.
    pub fn new(style: HeaderStyle) -> Self {
        Self::of(style)
    }

    const fn of(style: HeaderStyle) -> Self {
        Self {
            style,
            capped_ratio: true,
            all_policies_on_denial: false,
            retry_after_ms: matches!(style, HeaderStyle::OpenAi),
            jitter: 0,
            names: OwnNames::NONE,
            mistake: FirstMistake::NONE,
        }
    }

    /// Whether the style tells nothing of limits, so that no wait may be in a response.
    pub(crate) fn hides_waits(&self) -> bool {
        self.style == HeaderStyle::Hidden
    }

    /// Sets whether `t` is raised until `r / t` is at most the policy's own rate.
    ///
    /// Defaults to `true`. Without the cap, `r=90;t=5` would invite 18 requests a second from a client whose policy
    /// allows 1.7 (draft-11, section 8.5).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HeaderStyle, headers::HeaderWriter};
    ///
    /// // `t` is always the time until more units become available.
    /// let writer = HeaderWriter::new(HeaderStyle::Draft11).with_capped_ratio(false);
    /// # let _ = writer;
    /// ```
    #[must_use]
    pub fn with_capped_ratio(self, capped: bool) -> Self {
        Self { capped_ratio: capped, ..self }
    }

    /// Sets whether `RateLimit` lists every policy on a denial, instead of the violated policies alone.
    ///
    /// Defaults to `false`, because `Retry-After` should not end before any window that `RateLimit` lists.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HeaderStyle, headers::HeaderWriter};
    ///
    /// let writer =
    ///     HeaderWriter::new(HeaderStyle::Draft11).with_all_policies_on_denial(true);
    /// # let _ = writer;
    /// ```
    #[must_use]
    pub fn with_all_policies_on_denial(self, all: bool) -> Self {
        Self { all_policies_on_denial: all, ..self }
    }

    /// Sets whether a refusal with `Retry-After` has the wait in milliseconds too, as `retry-after-ms`.
    ///
    /// The SDKs of OpenAI and Anthropic, and clients made like them, read this field first. They lose up to a second of
    /// each wait to `Retry-After`, which has whole seconds. The milliseconds are rounded up, from 1, so a client is
    /// never early. Defaults to `true` in the style [`OpenAi`](HeaderStyle::OpenAi), and to `false` in the others,
    /// because no standard has the field.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::HeaderMap;
    /// use tollgate::{
    ///     HeaderStyle, Limiter, MemoryStore, Policy, headers::HeaderWriter,
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let policy = Policy::per_second("per-user", 10)?;
    /// let _ = limiter.check("user:17", &policy, 10).await?;
    /// let denied = limiter.check("user:17", &policy, 1).await?;
    ///
    /// let mut headers = HeaderMap::new();
    /// let writer = HeaderWriter::new(HeaderStyle::Draft11).with_retry_after_ms(true);
    /// writer.write(&denied, &mut headers);
    /// let millis: u64 = headers["retry-after-ms"].to_str()?.parse()?;
    /// assert!((1..=1_000).contains(&millis) && headers["retry-after"] == "1");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_retry_after_ms(self, in_millis: bool) -> Self {
        Self { retry_after_ms: in_millis, ..self }
    }

    /// Sets the jitter: each wait grows by a random time of at most `most`, so that clients with the same wait do not
    /// return in the same second.
    ///
    /// The jitter is in whole seconds, as `Retry-After` is; a fraction of a second in `most` is dropped. All amounts
    /// are equally likely, and none is longer than the wait itself. Defaults to zero, which keeps `Retry-After` exact.
    /// Set a jitter for fixed windows, where all clients wait for the same instant.
    ///
    /// `Retry-After`, the fields with the same wait (`t`, a reset) and
    /// [`Denial::retry_after`](crate::rejection::Denial::retry_after) grow by the same amount. On an allowed response,
    /// `t` grows if no units are left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{
    ///     GlobalKey, HeaderStyle, Limiter, MemoryStore, Policy, RateLimitLayer,
    ///     headers::HeaderWriter,
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let writer = HeaderWriter::new(HeaderStyle::Draft11)
    ///     .with_jitter(Duration::from_secs(10));
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_hour("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_headers(writer);
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_jitter(self, most: Duration) -> Self {
        Self { jitter: u32::try_from(most.as_secs()).unwrap_or(u32::MAX), ..self }
    }

    /// Writes the fields for a decision into the headers of a response. The fields say nothing about
    /// [shadow](crate::Policy::with_shadow) policies.
    ///
    /// A denial also gets `Retry-After`, if a wait helps, and `Cache-Control: no-store`. A decision without the
    /// [time](Decision::time) of a store has no RateLimit fields. A denial without [policies](Decision::policies), such
    /// as that of a closed failure policy, has a `Retry-After` of 1.
    ///
    /// Of fields that the response has already, the stricter limit is kept:
    ///
    /// * A field that is a list gets one more line.
    /// * Of two limits in a style that sends a single limit, the stricter limit is kept as a whole: the limit with
    ///   fewer units left, then the limit with the later reset. An inner limit that cannot be parsed is kept, because
    ///   it may be the stricter limit.
    /// * Of two `Retry-After` values the longer one is kept, on one line. A date is replaced with seconds. Milliseconds
    ///   are never shorter than the `Retry-After` that is kept.
    /// * A `Cache-Control` that the response has is kept.
    pub fn write(&self, decision: &Decision, headers: &mut HeaderMap) {
        self.write_with_jitter(decision, self.jitter_of(decision)).apply(headers);
    }

    /// Writes the fields for an allowed decision, to be added to the response later.
    pub(crate) fn write_allowed(&self, decision: &Decision) -> AllowedFields {
        let jitter = self.jitter_of(decision);
        let Some((only, now_us)) = self.one_in_draft_11(decision) else {
            return self.write_with_jitter(decision, jitter).into();
        };
        let quota = QuotaReport::at(only, now_us);
        let quotas = slice::from_ref(&quota);
        let limit = ietf::draft_11_limit(&self.snapshot(quotas, true, now_us, jitter), &quota);
        AllowedFields::Draft11 { policy: policy_field(only, quotas), limit }
    }

    /// Writes the fields for a denied decision into the headers of its response. Each wait is longer by `jitter`.
    pub(crate) fn apply_denied(&self, decision: &Decision, jitter: Duration, headers: &mut HeaderMap) {
        let Some((only, now_us)) = self.one_in_draft_11(decision) else {
            return self.write_with_jitter(decision, jitter).apply(headers);
        };
        let quota = QuotaReport::at(only, now_us);
        let quotas = slice::from_ref(&quota);
        let snapshot = self.snapshot(quotas, false, now_us, jitter);
        headers.append(RATELIMIT_POLICY, policy_field(only, quotas));
        if self.all_policies_on_denial || quota.violated {
            headers.append(RATELIMIT, ietf::draft_11_limit(&snapshot, &quota));
        }
        self.insert_wait(snapshot.wait(), headers);
    }

    /// Writes the fields of a refusal without a denied decision.
    pub(crate) fn insert_wait(&self, wait: Option<Duration>, headers: &mut HeaderMap) {
        fields::insert_rejection(headers, wait.filter(|_| !self.hides_waits()), self.retry_after_ms);
    }

    /// The policy and the time of a decision on one policy, if the style is `Draft11` and the policy sends no partition
    /// key. This is the common case, which needs no set of fields, because the style only appends.
    fn one_in_draft_11<'a>(&self, decision: &'a Decision) -> Option<(&'a PolicyDecision, u64)> {
        match (self.style, decision.policies()) {
            (HeaderStyle::Draft11, [only @ PolicyDecision { partition_key: None, .. }])
                if !only.is_shadow() && self.names.are_none() =>
            {
                Some((only, decision.time_us()?))
            }
            _ => None,
        }
    }

    /// Writes the fields for quotas that something else has counted.
    ///
    /// `allowed` says whether the request passes, and `now` is the time of the counts.
    #[doc(hidden)]
    pub fn write_quotas(&self, quotas: &[QuotaReport<'_>], allowed: bool, now: SystemTime) -> HeaderFields {
        let jitter = self.draw(longest_wait(quotas.iter().copied(), allowed));
        let now_us = micros(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        self.write_snapshot(|| ietf::draft_11_policies(quotas), &self.snapshot(quotas, allowed, now_us, jitter))
    }

    /// Draws the jitter of a wait. Zero without a wait.
    pub(crate) fn draw(&self, wait: Option<Duration>) -> Duration {
        match (self.jitter, wait) {
            (0, _) | (_, None) => Duration::ZERO,
            (most, Some(wait)) => draw(wait, most),
        }
    }

    fn jitter_of(&self, decision: &Decision) -> Duration {
        match self.jitter {
            0 => Duration::ZERO,
            _ => {
                let longest = longest_wait(decision.enforced().map(QuotaReport::from), decision.is_allowed());
                self.draw(longest.or_else(|| outage_wait(decision)))
            }
        }
    }

    fn write_with_jitter(&self, decision: &Decision, jitter: Duration) -> HeaderFields {
        let Some(now_us) = decision.time_us() else { return self.without_quotas(decision, jitter) };
        let quotas: SmallVec<[QuotaReport<'_>; 1]> =
            decision.enforced().map(|decision| QuotaReport::at(decision, now_us)).collect();
        if quotas.is_empty() {
            return self.no_fields();
        }
        let policies = || match decision.policies() {
            [only @ PolicyDecision { partition_key: None, .. }] => Some(policy_field(only, &quotas)),
            _ => ietf::draft_11_policies(&quotas),
        };
        self.write_snapshot(policies, &self.snapshot(&quotas, decision.is_allowed(), now_us, jitter))
    }

    /// The fields of a decision that knows no time of a store. A denial can still say how long to wait.
    fn without_quotas(&self, decision: &Decision, jitter: Duration) -> HeaderFields {
        let mut fields = self.no_fields();
        if !decision.is_allowed() {
            let wait = decision.retry_after().or_else(|| outage_wait(decision));
            self.push_rejection(&mut fields, wait.map(|wait| wait.saturating_add(jitter)));
        }
        fields
    }

    fn write_snapshot(&self, policies: impl FnOnce() -> Option<HeaderValue>, snapshot: &Snapshot<'_>) -> HeaderFields {
        let mut fields = self.no_fields();
        match self.style {
            HeaderStyle::Draft03 => ietf::draft_03(snapshot, &mut fields),
            HeaderStyle::Draft06 => ietf::draft_06(snapshot, &mut fields),
            HeaderStyle::Draft07 => ietf::draft_07(snapshot, &mut fields),
            HeaderStyle::Draft11 => {
                if let Some(policies) = policies() {
                    fields.push(RATELIMIT_POLICY, policies);
                }
                if let Some(limits) = ietf::draft_11_limits(snapshot, self.all_policies_on_denial) {
                    fields.push(RATELIMIT, limits);
                }
            }
            HeaderStyle::EnvoyCompat => x_rate_limit::envoy(snapshot, &mut fields),
            HeaderStyle::Hidden | HeaderStyle::None => {}
            HeaderStyle::OpenAi => openai::push(snapshot, &mut fields),
            HeaderStyle::TowerGovernorCompat => x_rate_limit::tower_governor(snapshot, &mut fields),
            HeaderStyle::XRateLimitDelta => x_rate_limit::delta(snapshot, &mut fields),
            HeaderStyle::XRateLimitEpoch => x_rate_limit::epoch(snapshot, &mut fields),
        }
        if !snapshot.allowed {
            self.push_rejection(&mut fields, snapshot.wait());
        }
        fields
    }

    fn push_rejection(&self, fields: &mut HeaderFields, wait: Option<Duration>) {
        fields.push_rejection(wait.filter(|_| !self.hides_waits()), self.retry_after_ms);
    }

    fn no_fields(&self) -> HeaderFields {
        HeaderFields::new(self.style).with_names(self.names.clone())
    }

    fn snapshot<'a>(
        &self,
        quotas: &'a [QuotaReport<'a>],
        allowed: bool,
        now_us: u64,
        jitter: Duration,
    ) -> Snapshot<'a> {
        Snapshot { quotas, allowed, now_us, capped_ratio: self.capped_ratio, jitter }
    }
}

/// The wait of a denial without a verdict.
fn outage_wait(decision: &Decision) -> Option<Duration> {
    (!decision.is_allowed() && decision.policies().is_empty()).then_some(OUTAGE_RETRY_AFTER)
}

/// `RateLimit-Policy` of one policy without a partition key. The policy caches the value, which never changes.
fn policy_field(decision: &PolicyDecision, quotas: &[QuotaReport<'_>]) -> HeaderValue {
    let write = || ietf::draft_11_policies(quotas).expect("a policy's name is a Token, which headers can hold");
    decision.policy.derived(write)
}
