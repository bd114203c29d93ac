//! The programs of `examples/`, as a user runs them.
#![allow(clippy::unwrap_used)]

mod ai_gateway;
mod built;
// A part of the example server.
#[allow(dead_code, reason = "the page uses the rest of this module")]
#[path = "../../../examples/server/page/history.rs"]
mod history;
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
mod page;
#[path = "../clients/program.rs"]
mod program;
mod refusals;
mod running;
mod server;
mod slow_viewers;
mod streamed;
#[path = "../support/mod.rs"]
mod support;
