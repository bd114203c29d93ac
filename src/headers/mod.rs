//! The fields that tell a client where it stands.
//!
//! One arithmetic for all styles ([`Quota`]), one file per family of spellings. The default is the format of
//! draft-ietf-httpapi-ratelimit-headers-11; a draft may still change, so its number is in the name.

mod fields;
mod ietf;
mod jitter;
mod line;
mod quota;
mod report;
mod structured;
mod style;
mod writer;
mod x_rate_limit;

use std::time::Duration;

use http::HeaderMap;

pub(crate) use self::report::whole_seconds;
pub use self::{fields::Fields, quota::Quota, style::HeaderStyle, writer::Writer};
pub use crate::key::partition::PartitionKeys;

/// The fields of a refusal that no quota is behind.
pub(crate) fn refuse(headers: &mut HeaderMap, retry_after: Option<Duration>) {
    fields::refuse(headers, retry_after.map(whole_seconds));
}
