//! Every test that needs no server, in one binary, by module of the crate. What needs Redis is in `server-tests`.
#![allow(clippy::unwrap_used)]

mod headers;
mod key;
mod limiter;
mod middleware;
mod observe;
mod rejection;
mod store;
mod support;
