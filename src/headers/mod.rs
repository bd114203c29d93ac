//! The response fields that tell a client its limit, what is left, and when to return.
//!
//! A client that knows its quota can pace itself; a client that does not is refused and tries again. There is no single
//! standard for these fields, so a [`HeaderStyle`] chooses one of the common forms. The default is
//! draft-ietf-httpapi-ratelimit-headers-11. A draft may still change, so its number is in the name of the style.
//!
//! # Rules
//!
//! * `Retry-After` and `Cache-Control: no-store` are sent on every denial, in every style.
//! * Waits are whole seconds, rounded up: a client that waits this long is not early.
//! * Fields of an inner limiter are merged and never loosened; see [`Fields::apply`].
//! * A decision without a store's verdict (fail-open, fail-closed) has no RateLimit fields.
//! * No field contains a key. [`PartitionKeys`] send a hash or a public label instead, if a policy asks for it.
//!
//! # Examples
//!
//! The default fields of an allowed response:
//!
//! ```
//! use http::HeaderMap;
//! use tollgate::{Limiter, MemoryStore, Policy, headers::Writer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let decision = limiter.check("user:17", &Policy::per_minute("per-user", 60)?, 1).await?;
//!
//! let mut headers = HeaderMap::new();
//! Writer::default().write(&decision).apply(&mut headers);
//! assert_eq!(headers["ratelimit-policy"], r#""per-user";q=60;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""per-user";r=59;t=60"#);
//! # Ok(())
//! # }
//! ```
//!
//! Customised: the de-facto `X-RateLimit` fields, with random jitter of up to five seconds on waits, for a layer.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{HeaderStyle, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, headers::Writer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let writer = Writer::new(HeaderStyle::XRateLimitEpoch).with_jitter(Duration::from_secs(5));
//! let policy = Policy::per_minute("per-client", 60)?;
//! let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, PeerIp::default())
//!     .with_header_writer(writer);
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod bounded_text;
mod fields;
mod ietf;
mod jitter;
mod names;
mod number;
mod quota;
mod seconds;
mod snapshot;
mod structured;
mod style;
mod writer;
mod x_rate_limit;

pub use self::{fields::Fields, quota::Quota, style::HeaderStyle, writer::Writer};
pub(crate) use self::{fields::insert_rejection, seconds::whole_seconds};
pub use crate::key::partition::PartitionKeys;
