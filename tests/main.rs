//! All tests that need no server, in one binary, by module of the crate. Tests that need Redis are in `server-tests`.
#![allow(clippy::unwrap_used)]

mod headers;
mod key;
mod limiter;
mod middleware;
mod observe;
mod rejection;
mod store;
mod support;
mod throttle;
