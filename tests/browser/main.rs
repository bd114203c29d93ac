//! The example server's page in Chromium, as a user sees it: `tests/run --browser`.
#![allow(clippy::unwrap_used)]

mod browser;
mod built;
mod page;
mod pictures;
mod redis;
#[path = "../server/programs/running.rs"]
#[allow(dead_code)]
mod running;
