//! All tests that need no server, in one binary, by module of the crate. Tests that need Redis are in `tests/server`.
#![allow(clippy::unwrap_used)]

mod decision;
mod error;
mod headers;
mod jobs;
mod key;
mod limiter;
mod limits;
mod live;
mod middleware;
mod observe;
mod plans;
mod rejection;
mod store;
mod support;
mod testing;
mod throttle;
mod words;
