//! Tests on Redis that together take a minute: the Redis store, its scripts, the store suite, and observers.
#![allow(clippy::unwrap_used)]

mod live;
mod lives;
mod lua;
mod observe;
mod redis;
mod store;
mod support;
mod vectors;
