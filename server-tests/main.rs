//! Tests on Redis that take a minute together: what only Redis can do, its scripts, the suite of every store, observers.
#![allow(clippy::unwrap_used)]

mod lua;
mod observe;
mod redis;
mod store;
mod support;
mod vectors;
