//! Several instances and a Redis that fails. Apart from the other tests, for these take a machine's time.
#![allow(clippy::unwrap_used)]

mod failure_domains;
mod instances;
mod local_fallback;
#[path = "../support/mod.rs"]
mod support;
