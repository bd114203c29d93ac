//! The service as Envoy calls it: through gRPC.
#![allow(clippy::unwrap_used)]

mod any_text;
mod changes;
mod configuration;
mod counts;
mod ends;
mod failure;
mod health;
mod hits;
mod holds;
mod limits;
mod program;
mod quota_mode;
mod quota_streams;
mod quotas;
mod readers;
mod reconnects;
mod reference;
mod replies;
mod several;
#[path = "../support/mod.rs"]
mod support;
mod warnings;
