//! Several instances and a Redis that fails. Apart from the other tests, for these take a machine's time.
#![allow(clippy::unwrap_used)]

mod instances;
mod local;
#[cfg(feature = "cluster")]
mod parts;
#[path = "../support/mod.rs"]
mod support;
