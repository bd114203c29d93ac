//! The shared store: one budget for every instance of a service.

mod ban_settings;
mod builder;
mod call;
mod clear;
mod connect;
mod instances;
mod key_hash;
mod net;
mod ready;
mod store;

pub use self::{ban_settings::OpenHolds, builder::RedisStoreBuilder, store::RedisStore};
