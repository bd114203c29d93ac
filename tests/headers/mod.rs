//! Response headers.

pub(crate) mod fields;
mod grammar;
mod jitter;
mod openai;
mod own_names;
mod partition;
mod retry_after;
