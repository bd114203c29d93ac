//! Response headers.

pub(crate) mod fields;
mod grammar;
mod jitter;
mod openai;
mod partition;
mod retry_after;
