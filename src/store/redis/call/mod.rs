//! What is sent to Redis: checks, the script and its protocol, batches, and checks across slots.

mod alone;
mod alternatives;
pub(crate) mod batch;
mod by_key;
mod calendar_times;
pub(crate) mod client;
pub(crate) mod count_reply;
pub(crate) mod cross_slot;
pub(crate) mod denials;
mod domain_permit;
mod hold_record;
pub(crate) mod outgoing;
mod packed;
mod parts;
pub(crate) mod per_runtime;
pub(crate) mod progress;
mod protocol;
mod queue;
pub(crate) mod redis_key;
pub(crate) mod refund_list;
mod reply;
mod runs;
pub(crate) mod script;
mod series;
pub(crate) mod traffic;
pub(super) mod up_to;
