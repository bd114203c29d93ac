//! Clients behind a real nginx, and the headers that they forge.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod forged;
mod nginx;
