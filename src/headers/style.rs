//! Header styles: the names of their fields, and how each field is merged.

use http::HeaderName;
use http::header::{CACHE_CONTROL, RETRY_AFTER};

use crate::error::in_words;
use crate::headers;

/// The form in which response fields state the limit.
///
/// Every style but [`Hidden`](Self::Hidden) sends `Retry-After` and `Cache-Control: no-store` on a denial, because both
/// are published standards.
/// [`OpenAi`](Self::OpenAi) also sends `retry-after-ms`.
///
/// In styles with one limit, the limit of a token bucket with a burst is the burst, because the units left are counted
/// from the burst. Revisions 03, 06 and 07 also send the rate: `10;w=60;burst=100`. [`Draft11`](Self::Draft11) sends
/// the rate as `q` and `w`, and the units left of the burst, at most `q`, as `r`.
///
/// Give nested layers the same style, because styles use the same names with different meanings.
///
/// As text: `draft-11`, `draft-07`, `draft-06`, `draft-03`, `x-ratelimit`, `x-ratelimit-epoch`, `envoy`,
/// `tower-governor`, `openai`, `none`, `hidden`.
///
/// # Examples
///
/// ```
/// use tollgate::{
///     GlobalKey, HeaderStyle, Limiter, MemoryStore, Policy, RateLimitLayer,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     Policy::per_minute("all", 60)?,
///     GlobalKey,
/// )
/// .with_headers(HeaderStyle::XRateLimitDelta);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit-Limit: 100, 100;w=60`, `RateLimit-Remaining` and `RateLimit-Reset` of
    /// draft-ietf-httpapi-ratelimit-headers-03.
    Draft03,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy` of draft-ietf-httpapi-ratelimit-headers-06.
    Draft06,
    /// `RateLimit: limit=, remaining=, reset=` and `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-07.
    Draft07,
    /// `RateLimit: "name";r=;t=` and `RateLimit-Policy: "name";q=;w=` of draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Draft11,
    /// The fields of Envoy: `X-RateLimit-Limit: 100, 100;w=60;name="per-client"`, `-Remaining` and `-Reset` in seconds
    /// from now, and `X-Envoy-RateLimited: true` on a denial, which keeps sidecars from retrying the
    /// request.
    EnvoyCompat,
    /// No field that tells of a limit, not even `Retry-After`: for services whose limits clients must not learn.
    ///
    /// `Cache-Control: no-store` stays on a denial, so that no cache serves it to other clients. The bodies of
    /// rejections and the metadata of gRPC do not have the wait either, but they name violated policies and the reason:
    /// with [`EmptyBody`](crate::rejection::EmptyBody), or a closure that responds with another status, a denial tells
    /// nothing. Clients that cannot know the wait retry early, and a retry costs a check.
    Hidden,
    /// No RateLimit fields. `Retry-After` is sent; see [`Hidden`](Self::Hidden) to leave it out too.
    None,
    /// The fields of OpenAI's API, which SDKs of model APIs read: `x-ratelimit-limit-requests`, `-remaining-requests`
    /// and `-reset-requests`, the same three for `-tokens`, and `retry-after-ms` on a denial.
    ///
    /// A policy with the [unit](crate::Policy::with_unit) `tokens` is in the second three, a policy without a unit in
    /// the first three, and a policy with any other unit in none. Of several policies in one unit, the one with the
    /// fewest units left is sent, or on a denial the violated one with the longest wait. A reset is a duration to the
    /// millisecond, such as `6ms`, `1.5s`, `6m0s` or `1h2m3s`: the time until all units are available again, or on a
    /// denial the time until the request passes.
    OpenAi,
    /// The fields of tower_governor: `X-RateLimit-Limit` and `-Remaining`, and `X-RateLimit-After` on a denial, here
    /// with the value of `Retry-After`.
    TowerGovernorCompat,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now.
    XRateLimitDelta,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds since the Unix epoch, as on GitHub.
    XRateLimitEpoch,
}

in_words!(HeaderStyle, "style of header fields");

impl HeaderStyle {
    /// The words of `headers` in a file of limits.
    pub(crate) const WORDS: [(&'static str, Self); 11] = [
        ("draft-11", Self::Draft11),
        ("draft-07", Self::Draft07),
        ("draft-06", Self::Draft06),
        ("draft-03", Self::Draft03),
        ("x-ratelimit", Self::XRateLimitDelta),
        ("x-ratelimit-epoch", Self::XRateLimitEpoch),
        ("envoy", Self::EnvoyCompat),
        ("tower-governor", Self::TowerGovernorCompat),
        ("openai", Self::OpenAi),
        ("none", Self::None),
        ("hidden", Self::Hidden),
    ];

    /// Returns the names of all fields that the style may send. List the names in `Access-Control-Expose-Headers`, so
    /// that scripts of another origin can read the fields.
    ///
    /// `Cache-Control` is not in the list, because scripts may always read it. The rate limit layer writes no CORS
    /// fields; put a CORS layer outside the rate limit layer. `retry-after-ms` is in the list of
    /// [`OpenAi`](Self::OpenAi) only; add it where
    /// [`with_retry_after_ms`](crate::headers::HeaderWriter::with_retry_after_ms) sends it in another style.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::HeaderStyle;
    /// use tower_http::cors::CorsLayer;
    ///
    /// let cors =
    ///     CorsLayer::new().expose_headers(HeaderStyle::Draft11.names().to_vec());
    /// # assert_eq!(HeaderStyle::Draft11.names(), ["retry-after", "ratelimit", "ratelimit-policy"]);
    /// ```
    pub fn names(self) -> &'static [HeaderName] {
        match self {
            Self::Draft03 => &DRAFT_03,
            Self::Draft06 => &DRAFT_06,
            Self::Draft07 | Self::Draft11 => &DRAFT_07,
            Self::EnvoyCompat => &ENVOY,
            Self::Hidden => &[],
            Self::None => &NONE,
            Self::OpenAi => &OPENAI,
            Self::TowerGovernorCompat => &TOWER_GOVERNOR,
            Self::XRateLimitDelta | Self::XRateLimitEpoch => &X_RATE_LIMIT,
        }
    }

    /// In a style that sends a single limit, or one for each unit, the fields that describe a limit together: first the
    /// units left, last the reset. Empty in other styles.
    pub(super) fn single_limits(self) -> &'static [Limit] {
        match self {
            Self::Draft03 | Self::Draft06 => &SINGLE_DRAFT,
            Self::Draft07 => &SINGLE_DRAFT_07,
            Self::Draft11 | Self::Hidden | Self::None => &[],
            Self::EnvoyCompat | Self::XRateLimitDelta | Self::XRateLimitEpoch => &SINGLE_X,
            Self::OpenAi => &REQUESTS_AND_TOKENS,
            Self::TowerGovernorCompat => &SINGLE_X_WITHOUT_RESET,
        }
    }

    /// How the field `name` is merged, if it is not one of a [single limit](Self::single_limits) that is left out.
    pub(super) fn merge(name: &HeaderName) -> Merge {
        if name == RETRY_AFTER || name == headers::RETRY_AFTER_MS || name == headers::X_AFTER {
            Merge::Longest
        } else if name == CACHE_CONTROL || name == headers::X_ENVOY_RATELIMITED {
            Merge::IfAbsent
        } else {
            Merge::Append
        }
    }
}

/// How a field is merged into a response that has the field already.
pub(super) enum Merge {
    /// Both values are kept, because the field is a list or the response has none.
    Append,
    /// The longer wait is kept.
    Longest,
    /// The value of the response is kept.
    IfAbsent,
}

static DRAFT_03: [HeaderName; 4] =
    [RETRY_AFTER, headers::RATELIMIT_LIMIT, headers::RATELIMIT_REMAINING, headers::RATELIMIT_RESET];
static DRAFT_06: [HeaderName; 5] = [
    RETRY_AFTER,
    headers::RATELIMIT_LIMIT,
    headers::RATELIMIT_REMAINING,
    headers::RATELIMIT_RESET,
    headers::RATELIMIT_POLICY,
];
static DRAFT_07: [HeaderName; 3] = [RETRY_AFTER, headers::RATELIMIT, headers::RATELIMIT_POLICY];
static ENVOY: [HeaderName; 5] =
    [RETRY_AFTER, headers::X_LIMIT, headers::X_REMAINING, headers::X_RESET, headers::X_ENVOY_RATELIMITED];
static NONE: [HeaderName; 1] = [RETRY_AFTER];
static OPENAI: [HeaderName; 8] = [
    RETRY_AFTER,
    headers::RETRY_AFTER_MS,
    headers::LIMIT_REQUESTS,
    headers::REMAINING_REQUESTS,
    headers::RESET_REQUESTS,
    headers::LIMIT_TOKENS,
    headers::REMAINING_TOKENS,
    headers::RESET_TOKENS,
];
static TOWER_GOVERNOR: [HeaderName; 4] = [RETRY_AFTER, headers::X_LIMIT, headers::X_REMAINING, headers::X_AFTER];
static X_RATE_LIMIT: [HeaderName; 4] = [RETRY_AFTER, headers::X_LIMIT, headers::X_REMAINING, headers::X_RESET];

/// The fields of one limit.
type Limit = &'static [HeaderName];

// Each list has a name, because a list of names without one cannot be borrowed in a static.
static DRAFT: [HeaderName; 3] = [headers::RATELIMIT_REMAINING, headers::RATELIMIT_LIMIT, headers::RATELIMIT_RESET];
static DICTIONARY: [HeaderName; 1] = [headers::RATELIMIT];
static X: [HeaderName; 3] = [headers::X_REMAINING, headers::X_LIMIT, headers::X_RESET];
static X_WITHOUT_RESET: [HeaderName; 2] = [headers::X_REMAINING, headers::X_LIMIT];
static REQUESTS: [HeaderName; 3] = [headers::REMAINING_REQUESTS, headers::LIMIT_REQUESTS, headers::RESET_REQUESTS];
static TOKENS: [HeaderName; 3] = [headers::REMAINING_TOKENS, headers::LIMIT_TOKENS, headers::RESET_TOKENS];

static SINGLE_DRAFT: [Limit; 1] = [&DRAFT];
static SINGLE_DRAFT_07: [Limit; 1] = [&DICTIONARY];
static SINGLE_X: [Limit; 1] = [&X];
static SINGLE_X_WITHOUT_RESET: [Limit; 1] = [&X_WITHOUT_RESET];
static REQUESTS_AND_TOKENS: [Limit; 2] = [&REQUESTS, &TOKENS];
