//! Limits as data: policies, routes, costs, failure policies and header style from a file, in any format of serde
//! (feature `serde`).
//!
//! The words of a file are the setters of [`Policy`](crate::Policy), [`RateLimitLayer`](crate::RateLimitLayer) and
//! [`Route`](crate::Route) in kebab case, and mean the same. [Limits in a file](crate::guide::config_file) lists
//! all of them.
//!
//! # Rules
//!
//! 1. Deserialize a [`LimitsConfig`]. The text of the error has all mistakes at once, in a line each, with its place:
//!    `routes."/search".cost`. Of more than 32, the last line counts the others.
//! 2. A field that a route leaves out is that of `default`. A field that `default` leaves out has the default of the
//!    layer.
//! 3. Names of policies are compared without case.
//! 4. A file that limits nothing is refused, unless it says `shadow`.
//! 5. A [`LimitsConfig`] is a plain value. [`LimitsConfig::layer`] calls the setters of the layer with it.
//!
//! # Examples
//!
//! A whole file:
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{GlobalKey, Limiter, MemoryStore, limits::LimitsConfig};
//! use tower::ServiceExt;
//!
//! const FILE: &str = r#"
//!     headers = "x-ratelimit"
//!
//!     [policies.per-client]
//!     rate = "60/min"
//!     ban-after = { denials = 100, for = "10m" }
//!
//!     [policies.tokens]
//!     limit = 100_000
//!     window = "1d"
//!     algorithm = "token-bucket"
//!     burst = 5_000
//!     unit = "tokens"
//!     near-limit = 0.9
//!
//!     [policies.login]
//!     rate = "5/min"
//!     count-rejected = true
//!
//!     [default]
//!     policies = ["per-client", "tokens"]
//!     costs = { tokens = 100 }
//!
//!     [routes."/search"]
//!     cost = 40
//!     on-store-failure = "closed"
//!
//!     [routes."POST /login"]
//!     policies = ["login"]
//!
//!     [routes."/healthz"]
//!     exempt = true
//! "#;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits: LimitsConfig = toml::from_str(FILE)?;
//! let layer = limits.layer(Limiter::new(MemoryStore::new()), GlobalKey)?;
//! let app = Router::new().route("/search", get(|| async { "found" })).layer(layer);
//!
//! let search = || app.clone().oneshot(Request::get("/search").body(Body::empty()).unwrap());
//! assert_eq!(search().await?.headers()["x-ratelimit-remaining"], "20");
//! assert_eq!(search().await?.status(), StatusCode::TOO_MANY_REQUESTS);
//! # Ok(())
//! # }
//! ```
//!
//! Mistakes, all at once:
//!
//! ```
//! use tollgate::limits::LimitsConfig;
//!
//! let file = r#"
//!     [policies.per-client]
//!     rate = "60/min"
//!     [default]
//!     policies = ["per-clients"]
//!     [routes."/search"]
//!     cots = 10
//! "#;
//! let error = toml::from_str::<LimitsConfig>(file).unwrap_err();
//! let message = [
//!     r#"default.policies: no policy is called "per-clients"; write one of "per-client""#,
//!     r#"routes."/search".cots: no field has this name; did you mean cost?"#,
//! ];
//! assert_eq!(error.message(), message.join("\n"));
//! ```

mod calendar;
mod config;
mod entry;
mod fields;
mod file;
mod live;
pub(crate) mod mistake;
mod policy;
mod section;
mod tree;
mod uncharged;

#[cfg(feature = "watch")]
pub use self::live::LimitsFileError;
pub use self::{config::LimitsConfig, live::LiveLimits};

/// The JSON Schema (draft 2020-12) of a file of limits: the text of `docs/limits.schema.json`.
///
/// Editors complete and check the fields of a file with it. The schema knows the fields, their types, ranges and words.
/// A [`LimitsConfig`] also compares fields with each other, such as a cost with a limit.
///
/// # Examples
///
/// ```
/// let schema: serde_json::Value = serde_json::from_str(tollgate::limits::schema()).unwrap();
/// assert_eq!(schema["properties"]["routes"]["type"], "object");
/// ```
pub fn schema() -> &'static str {
    include_str!("../../docs/limits.schema.json")
}
