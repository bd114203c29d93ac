//! What a user sees over HTTP, with axum.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod by_hand;
mod configuration;
mod cost;
mod decision;
mod denial;
mod failure;
mod fields;
mod gate;
mod grammar;
mod head;
mod jitter;
mod key_client;
mod key_custom;
mod key_denied;
mod key_header;
mod key_of;
mod key_path;
mod key_peer;
mod missing_key;
mod nesting;
mod partition;
mod policies;
mod privacy;
mod rejection;
mod retry_after;
mod route_patterns;
mod route_spellings;
mod routes;
mod setup_faults;
mod stacked;
mod subjects;
mod test_util;
