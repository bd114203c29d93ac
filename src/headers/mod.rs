//! The fields that tell a client where it stands.
//!
//! One arithmetic for all styles ([`Quota`]), one file per family of spellings. The default is the format of
//! draft-ietf-httpapi-ratelimit-headers-11; a draft may still change, so its number is in the name.

mod bounded_text;
mod fields;
mod ietf;
mod jitter;
mod names;
mod number;
mod quota;
mod seconds;
mod snapshot;
mod structured;
mod style;
mod writer;
mod x_rate_limit;

pub use self::{fields::Fields, quota::Quota, style::HeaderStyle, writer::Writer};
pub(crate) use self::{fields::insert_rejection, seconds::whole_seconds};
pub use crate::key::partition::PartitionKeys;
