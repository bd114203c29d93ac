//! Response fields that contain a client's limit, the units left and the time to wait.
//!
//! A client that receives its quota can pace its requests. A client that does not can only retry until a request
//! passes. There is no single standard for these fields, so a [`HeaderStyle`] chooses one of the common forms. The
//! default is draft-ietf-httpapi-ratelimit-headers-11. A draft may still change, so the name of its style contains its
//! number.
//!
//! # Rules
//!
//! * `Retry-After` and `Cache-Control: no-store` are sent on every denial, in every style but
//!   [`Hidden`](HeaderStyle::Hidden), which leaves `Retry-After` out.
//! * The RateLimit fields can have names of your own, see [`HeaderWriter::with_name`].
//! * Waits are whole seconds, rounded up, so that a client that waits as long as a field says is not early. Clients
//!   that read `retry-after-ms` need not wait for the rest of a second;
//!   [`with_retry_after_ms`](HeaderWriter::with_retry_after_ms) sends it.
//! * Fields of an inner limiter are merged with the fields of this limiter, and the stricter limit is kept; see
//!   [`HeaderWriter::write`].
//! * A decision without a verdict of a store (fail-open, fail-closed) has no RateLimit fields.
//! * No field contains a key. [`PartitionKeys`] send a hash or a public label instead, if a policy asks for it.
//!
//! # Examples
//!
//! The default fields of an allowed response:
//!
//! ```
//! use http::HeaderMap;
//! use tollgate::{Limiter, MemoryStore, Policy, headers::HeaderWriter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let decision =
//!     limiter.check("user:17", &Policy::per_minute("per-user", 60)?, 1).await?;
//!
//! let mut headers = HeaderMap::new();
//! HeaderWriter::default().write(&decision, &mut headers);
//! assert_eq!(headers["ratelimit-policy"], r#""per-user";q=60;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""per-user";r=59;t=60"#);
//! # Ok(())
//! # }
//! ```
//!
//! Customised: a layer that sends the de-facto `X-RateLimit` fields, with a random jitter of up to five seconds on
//! waits.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{
//!     HeaderStyle, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer,
//!     headers::HeaderWriter,
//! };
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let writer = HeaderWriter::new(HeaderStyle::XRateLimitEpoch)
//!     .with_jitter(Duration::from_secs(5));
//! let policy = Policy::per_minute("per-client", 60)?;
//! let limit = RateLimitLayer::new(
//!     Limiter::new(MemoryStore::new()),
//!     policy,
//!     PeerIp::new(),
//! )
//! .with_headers(writer);
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod duration;
mod fields;
mod ietf;
mod jitter;
mod names;
mod openai;
mod own_names;
mod quota;
mod structured;
mod style;
mod writer;
mod x_rate_limit;

use http::HeaderName;

pub(crate) use self::{
    duration::whole_seconds,
    fields::AllowedFields,
    writer::{DEFAULT as DEFAULT_WRITER, OUTAGE_RETRY_AFTER},
};
#[doc(hidden)]
pub use self::{fields::HeaderFields, quota::QuotaReport};
pub use self::{style::HeaderStyle, writer::HeaderWriter};
pub use crate::key::partition::PartitionKeys;

// Public for the tests of the fields, which need quotas that no policy has.

// Constants instead of statics, because cloning a static `HeaderName` calls through its vtable.
pub(crate) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(crate) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

pub(crate) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(crate) const X_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-after");
pub(crate) const X_RESET_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-reset-after");
pub(crate) const LIMIT_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
pub(crate) const REMAINING_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
pub(crate) const RESET_REQUESTS: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
pub(crate) const LIMIT_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-limit-tokens");
pub(crate) const REMAINING_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-remaining-tokens");
pub(crate) const RESET_TOKENS: HeaderName = HeaderName::from_static("x-ratelimit-reset-tokens");
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
pub(crate) const X_ENVOY_RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");
