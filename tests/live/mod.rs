//! Limits that are replaced while the service runs.

mod changes;
mod concurrency;
mod events;
pub(crate) mod files;
mod load;
mod memory;
mod requests;
mod setters;
mod warnings;
mod watch;
