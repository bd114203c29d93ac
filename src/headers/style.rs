//! The spellings, and the names that each of them uses.

use http::{HeaderName, header::RETRY_AFTER};

use super::{ietf, x_rate_limit};

/// How the limit's state is spelt in response headers.
///
/// `Retry-After` and `Cache-Control: no-store` on a denial are published standards and sent in every style.
///
/// The limit of a token bucket with a burst is the burst in all styles that tell one limit, because that is what the
/// units left are counted from. Revisions 03, 06 and 07 tell the rate beside it, `10;w=60;burst=100`.
/// [`Draft11`](Self::Draft11) tells the rate as `q` and `w`, and as `r` what is left of the burst, at most `q`.
///
/// Layers around one another should have one style, for styles share names and mean different things by them.
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
    /// What Envoy sends: `X-RateLimit-Limit: 100, 100;w=60;name="per-client"`, `-Remaining` and `-Reset` in seconds from
    /// now, and `X-Envoy-RateLimited: true` on a denial, which keeps sidecars from retrying it.
    EnvoyCompat,
    /// No fields.
    None,
    /// What tower_governor sends: `X-RateLimit-Limit` and `-Remaining`, and `X-RateLimit-After` on a denial, here with
    /// the value of `Retry-After`.
    TowerGovernorCompat,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds from now.
    XRateLimitDelta,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds since the Unix epoch, as on GitHub.
    XRateLimitEpoch,
}

impl HeaderStyle {
    /// The names of all fields that the style may send, for `Access-Control-Expose-Headers`: without them, scripts of
    /// another origin cannot read the fields.
    ///
    /// `Cache-Control` is not among them, for scripts may always read it. The layer writes no CORS fields; put a CORS
    /// layer outside it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::HeaderStyle;
    /// use tower_http::cors::CorsLayer;
    ///
    /// let cors = CorsLayer::new().expose_headers(HeaderStyle::Draft11.names().to_vec());
    /// # assert_eq!(HeaderStyle::Draft11.names(), ["retry-after", "ratelimit", "ratelimit-policy"]);
    /// ```
    pub fn names(self) -> &'static [HeaderName] {
        match self {
            Self::Draft03 => &DRAFT_03,
            Self::Draft06 => &DRAFT_06,
            Self::Draft07 | Self::Draft11 => &DRAFT_07,
            Self::EnvoyCompat => &ENVOY,
            Self::None => &NONE,
            Self::TowerGovernorCompat => &TOWER_GOVERNOR,
            Self::XRateLimitDelta | Self::XRateLimitEpoch => &X_RATE_LIMIT,
        }
    }

    /// Those of its names that there is one value of, about one limit, the units left first and the reset last.
    pub(super) fn single(self) -> &'static [HeaderName] {
        match self {
            Self::Draft03 | Self::Draft06 => &SINGLE_DRAFT,
            Self::Draft07 => &SINGLE_DRAFT_07,
            Self::Draft11 | Self::None => &[],
            Self::EnvoyCompat | Self::XRateLimitDelta | Self::XRateLimitEpoch => &SINGLE_X,
            Self::TowerGovernorCompat => &SINGLE_X[..2],
        }
    }
}

static DRAFT_03: [HeaderName; 4] =
    [RETRY_AFTER, ietf::RATELIMIT_LIMIT, ietf::RATELIMIT_REMAINING, ietf::RATELIMIT_RESET];
static DRAFT_06: [HeaderName; 5] =
    [RETRY_AFTER, ietf::RATELIMIT_LIMIT, ietf::RATELIMIT_REMAINING, ietf::RATELIMIT_RESET, ietf::RATELIMIT_POLICY];
static DRAFT_07: [HeaderName; 3] = [RETRY_AFTER, ietf::RATELIMIT, ietf::RATELIMIT_POLICY];
static ENVOY: [HeaderName; 5] =
    [RETRY_AFTER, x_rate_limit::LIMIT, x_rate_limit::REMAINING, x_rate_limit::RESET, x_rate_limit::ENVOY_RATELIMITED];
static NONE: [HeaderName; 1] = [RETRY_AFTER];
static TOWER_GOVERNOR: [HeaderName; 4] =
    [RETRY_AFTER, x_rate_limit::LIMIT, x_rate_limit::REMAINING, x_rate_limit::AFTER];
static X_RATE_LIMIT: [HeaderName; 4] = [RETRY_AFTER, x_rate_limit::LIMIT, x_rate_limit::REMAINING, x_rate_limit::RESET];

static SINGLE_DRAFT: [HeaderName; 3] = [ietf::RATELIMIT_REMAINING, ietf::RATELIMIT_LIMIT, ietf::RATELIMIT_RESET];
static SINGLE_DRAFT_07: [HeaderName; 1] = [ietf::RATELIMIT];
static SINGLE_X: [HeaderName; 3] = [x_rate_limit::REMAINING, x_rate_limit::LIMIT, x_rate_limit::RESET];
