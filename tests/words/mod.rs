//! The code of the rows in `docs/other-limiters.md`: what users of other limiters write here. It is compiled, and not
//! run, except the whole examples in `ports`. Each snippet begins with a comment: the first cell of its row.
#![allow(dead_code)]

use std::{net::IpAddr, time::Duration};

use axum::Router;
use axum::routing::{get, post};
use http::{HeaderValue, Response, StatusCode, header::COOKIE, request::Parts};
use tollgate::key::{self, KeyError};
use tollgate::policy::{self, FirstOf, HoldSettings, Policies, PolicySource};
use tollgate::rejection::{Denial, Reason};
use tollgate::{
    Algorithm, ApiKey, Calendar, Check, ClientIp, ConfigError, Decision, Error, ExtensionKey, HeaderStyle, Key,
    KeyExtractor, Limiter, LiveLimits, ManualClock, MemoryStore, PeerIp, Policy, ProblemJson, RateLimitLayer,
    RedisStore, Route, decision::PolicyDecision, middleware::Settlement, store::RedisStoreBuilder,
};
use tower::util::option_layer;

mod bucket4j;
mod django;
mod envoy;
mod express;
mod flexible;
mod gcra;
mod governor;
mod kong;
mod limitador;
mod limits;
mod nginx;
mod ports;
mod rack_attack;
mod table;
mod upstash;

/// What is made from settings.
type Made<T> = Result<T, ConfigError>;

/// What a limiter answers.
type Answered<T> = Result<T, Error>;

fn minute(limit: u64) -> Policy {
    Policy::per_minute("plan", limit).unwrap()
}
