//! The service behind a real Envoy, whose version `tests/envoy` names.
#![allow(clippy::unwrap_used)]

mod any_text;
mod backend;
mod budgets;
mod example;
mod faults;
mod fields;
mod flood;
mod proxy;
mod quotas;
#[path = "../support/mod.rs"]
mod support;
mod tokens;
