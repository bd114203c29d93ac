//! Response headers.

pub(crate) mod fields;
mod grammar;
mod jitter;
mod partition;
mod retry_after;
