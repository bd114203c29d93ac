//! What is sent to Redis: checks, the script and its protocol, batches, and checks across slots.

#[cfg(feature = "cluster")]
mod alone;
mod bans;
pub(crate) mod batch;
#[cfg(feature = "cluster")]
mod by_key;
pub(crate) mod client;
pub(crate) mod count_change;
mod count_reply;
#[cfg(feature = "cluster")]
pub(crate) mod cross_slot;
pub(crate) mod denials;
#[cfg(feature = "cluster")]
mod domain_permit;
pub(crate) mod failure_domain;
#[cfg(feature = "cluster")]
mod findings;
#[cfg(feature = "cluster")]
pub(crate) mod hash_tags;
mod hold_record;
pub(crate) mod holds;
mod lone_call;
pub(crate) mod outgoing;
mod packed;
#[cfg(feature = "cluster")]
mod part_refunds;
#[cfg(feature = "cluster")]
mod parts;
pub(crate) mod per_runtime;
pub(crate) mod progress;
mod protocol;
mod queue;
mod queues;
pub(crate) mod redis_key;
#[cfg(feature = "cluster")]
pub(crate) mod refund_list;
#[cfg(feature = "cluster")]
mod refunds;
mod reply;
mod runs;
pub(crate) mod script;
pub(crate) mod script_clock;
mod series;
mod step;
mod traffic;
mod watch;
