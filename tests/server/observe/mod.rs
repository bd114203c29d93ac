//! Events, warnings, logs and metrics of a limiter with a Redis store.

mod eviction;
mod guessable_keys;
mod instances;
mod metrics;
mod notices;
mod panics;
mod privacy;
mod redis;
