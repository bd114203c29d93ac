//! Policies: how many units a key may spend in a window, and how they are counted.
//!
//! A limit of 60 requests a minute does not say where a minute begins, what a unit is, or what happens to a client that
//! ignores the limit. A [`Policy`] defines all three: by its algorithm, its unit and its ban.
//!
//! # Rules
//!
//! 1. A policy has a name, a limit and a window, which has a length or is bounded by a [`Calendar`]. The name appears
//!    in headers, problem documents, metrics and Redis keys.
//! 2. Counts belong to the policy's name, algorithm, window and resolution. Policies that agree in these share their
//!    counts.
//! 3. A denied request changes no count, unless the policy [counts denials](Policy::with_denials_counted) or
//!    [bans](Policy::ban_after).
//! 4. A [shadow policy](Policy::with_shadow) counts and reports, and refuses nothing. It shares its counts with the
//!    same policy enforced.
//! 5. A policy [with holds](Policy::with_holds) counts open holds as spent.
//! 6. A constructor returns a [`ConfigError`](crate::ConfigError) if the limit cannot work. A policy keeps the first
//!    [mistake](Policy#mistakes) of its setters, and whatever uses the policy reports it.
//!
//! # The default
//!
//! Sixty units in any 60 seconds, exact to the microsecond:
//!
//! ```
//! use tollgate::Policy;
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let per_client = Policy::per_minute("per-client", 60)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Policy, policy::HoldSettings};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! // 100 requests a second on average, at most 20 at once.
//! let rate = Policy::per_second("rate", 100)?.with_algorithm(Algorithm::TokenBucket).with_burst(20);
//! // 100 MB a day, counted in bytes, with at most about 1 000 records per key.
//! let upload = Policy::per_day("upload", 100_000_000)?
//!     .with_unit("content-bytes")
//!     .with_resolution(Duration::from_secs(86));
//! // Counts and reports what it would deny, before it is enforced.
//! let exports = Policy::per_hour("exports", 20)?.with_shadow(true);
//! // Ten denials within ten minutes lock the key out for ten minutes.
//! let login = Policy::per_minute("login", 5)?.ban_after(10, Duration::from_secs(600));
//! // Tokens of a model, whose number is known afterwards.
//! let tokens = Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
//! # for policy in [rate, upload, exports, login, tokens] {
//! #     policy.validated()?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! Policies that depend on the request, such as plans, come from a [`PolicySource`]. `plans::Plans` (feature `plans`)
//! is one that looks policies up asynchronously.

mod algorithm;
mod calendar;
mod constructors;
mod definition;
mod first_of;
mod holding;
mod holds;
mod lease;
mod limit;
mod mistakes;
mod rollout;
mod settings;
mod source;
pub(crate) mod units;

#[cfg(feature = "redis")]
pub(crate) use self::calendar::CalendarWindow;
#[cfg(feature = "plans")]
pub(crate) use self::source::IntoPolicies;
pub use self::{
    algorithm::Algorithm,
    calendar::{Calendar, Weekday},
    first_of::FirstOf,
    holds::HoldSettings,
    limit::Policy,
    source::{Policies, PolicySource, from_fn},
};
pub(crate) use self::{
    algorithm::micros_up,
    first_of::{validate_alternatives, validate_beside_alternatives},
    source::SharedSource,
};
