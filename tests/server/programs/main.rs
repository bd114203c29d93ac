//! The programs of `examples/`, as a user runs them.
#![allow(clippy::unwrap_used)]

mod built;
mod holds;
mod inspect;
mod inspect_advice;
mod inspect_all;
mod inspect_bans;
mod inspect_broken;
mod inspect_by_hand;
mod inspect_files;
mod inspect_holds;
mod metrics;
mod model_gateway;
mod refusals;
mod running;
mod server;
#[path = "../support/mod.rs"]
mod support;
