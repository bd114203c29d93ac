//! The same limit in the layer of each crate: by peer address, with all header fields, counted in memory.

use std::net::{IpAddr, SocketAddr};
use std::{num::NonZeroU32, time::Duration};

use axum::{body::Body, extract::ConnectInfo};
use governor::middleware::StateInformationMiddleware;
use tollgate::{Algorithm, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
use tower_governor::{governor::GovernorConfigBuilder, key_extractor::PeerIpKeyExtractor};

use crate::Result;

pub const NONE: &str = "no layer";
/// The exact log, the default.
pub const TOLLGATE: &str = "tollgate";
/// The algorithm of the other crates.
pub const TOLLGATE_BUCKET: &str = "tollgate, bucket";
pub const TOWER_GOVERNOR: &str = "tower_governor";
pub const AXUM_GOVERNOR: &str = "axum-governor";

/// Whether the limit allows or denies the requests of a benchmark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Traffic {
    /// The limit is 1 000 000 per second and peer: all requests are allowed.
    Allowed,
    /// The limit is 1 per hour and peer: all requests but the first are denied.
    Denied,
}

impl Traffic {
    pub const ALL: [Self; 2] = [Self::Allowed, Self::Denied];

    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }

    fn limit(self) -> u32 {
        match self {
            Self::Allowed => 1_000_000,
            Self::Denied => 1,
        }
    }

    fn window(self) -> Duration {
        match self {
            Self::Allowed => Duration::from_secs(1),
            Self::Denied => Duration::from_secs(3_600),
        }
    }
}

pub fn tollgate(traffic: Traffic, algorithm: Algorithm) -> Result<RateLimitLayer<PeerIp>> {
    let policy = Policy::new("peers", traffic.limit().into(), traffic.window())?.with_algorithm(algorithm);
    Ok(RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, PeerIp::new()))
}

type TowerGovernor = tower_governor::GovernorLayer<PeerIpKeyExtractor, StateInformationMiddleware, Body>;

pub fn tower_governor(traffic: Traffic) -> Result<TowerGovernor> {
    let config = GovernorConfigBuilder::default()
        .period(traffic.window() / traffic.limit())
        .burst_size(traffic.limit())
        .use_headers()
        .finish()
        .ok_or("tower_governor: the period and the burst must not be zero")?;
    Ok(tower_governor::GovernorLayer::new(config))
}

pub fn axum_governor(traffic: Traffic) -> Result<axum_governor::GovernorLayer<IpAddr>> {
    let limit = NonZeroU32::new(traffic.limit()).ok_or("axum-governor: the limit must not be zero")?;
    let quota = match traffic {
        Traffic::Allowed => axum_governor::Quota::requests_per_second(limit),
        Traffic::Denied => axum_governor::Quota::requests_per_hour(limit),
    };
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(axum_governor::PeerIp::default())
        .expect_connect_info()
        .quota_default(quota)
        .finish()?;
    Ok(axum_governor::GovernorLayer::new(config))
}

/// The request extension with the peer's address, which axum sets and all layers read.
pub fn peer(number: usize) -> ConnectInfo<SocketAddr> {
    let [.., high, low] = number.to_be_bytes();
    ConnectInfo(SocketAddr::from(([198, 18, high, low], 4711)))
}
