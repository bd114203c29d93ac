//! The tower contract: readiness, refusals, errors, cancellation, and where the layer can be put.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod breaker;
mod cancellation;
mod clones;
mod deadline;
mod debts;
mod errors;
mod extensions;
mod fixture;
mod local;
mod observed;
mod one_budget;
mod panics;
mod patient;
mod placement;
mod readiness;
mod refusal;
mod search;
mod types;
