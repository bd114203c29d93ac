//! The limits of the server: built from the options, or read from a file that is read again when it changes.

use std::error::Error;

use tollgate::{ConfigError, Limiter, LiveLimits, PeerIp, Policy, RateLimitLayer, Route, limits::LimitsConfig};

use crate::{Failure, options::Options};

pub(crate) struct Limits {
    pub(crate) layer: RateLimitLayer<PeerIp>,
    pub(crate) quota: Quota,
}

/// The policy of which `/quota` reports the units left.
#[derive(Clone)]
pub(crate) enum Quota {
    Fixed(Policy),
    Live(LiveLimits),
}

/// The name of the policy that limits each client.
const PER_CLIENT: &str = "per-client";

impl Limits {
    /// The limits of the options. `limits.toml` has the same limits as a file.
    pub(crate) fn of(options: &Options, limiter: Limiter) -> Result<Self, ConfigError> {
        let per_client = Policy::new(PER_CLIENT, options.limit, options.window)?.with_algorithm(options.algorithm);
        let login = Policy::per_minute("login", 5)?.with_denials_counted(true);
        let layer = RateLimitLayer::new(limiter, per_client.clone(), PeerIp::new())
            .with_headers(options.headers)
            .route("/search", Route::new().cost(10).fail_closed())
            .route("POST /login", Route::new().policies(login).fail_closed())
            .route("/healthz", Route::exempt())
            .route("/quota", Route::exempt())
            .route("/metrics", Route::exempt())
            .route("/refused", Route::exempt())
            .validated()?;
        Ok(Self { layer, quota: Quota::Fixed(per_client) })
    }

    /// The limits in a file. The layer follows the file; a file that is refused is reported on standard error, and the
    /// old limits stay in force.
    pub(crate) fn watch(file: &str, limiter: Limiter) -> Result<Self, Failure> {
        let live = LiveLimits::watch(file, parse)?;
        Ok(Self { layer: live.layer(limiter, PeerIp::new())?, quota: Quota::Live(live) })
    }
}

impl Quota {
    /// The policy in force; `None` if the file has no policy of this name.
    pub(crate) fn policy(&self) -> Option<Policy> {
        match self {
            Self::Fixed(policy) => Some(policy.clone()),
            Self::Live(live) => live.policy(PER_CLIENT),
        }
    }
}

/// The error is that of the format TOML, or lists all mistakes in the limits.
fn parse(text: &str) -> Result<LimitsConfig, Box<dyn Error + Send + Sync>> {
    Ok(toml::from_str(text)?)
}
