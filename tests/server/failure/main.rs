//! Several instances and a Redis that fails. A separate binary, because these tests load the whole machine.
#![allow(clippy::unwrap_used)]

mod failure_domains;
mod instances;
mod local_fallback;
mod outage_loads;
#[path = "../support/mod.rs"]
mod support;
