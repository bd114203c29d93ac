//! Several instances and a Redis that fails. Apart from the other tests, for these take a machine's time.
#![allow(clippy::unwrap_used)]

mod instances;
mod local;
mod parts;
#[path = "../support/mod.rs"]
mod support;
