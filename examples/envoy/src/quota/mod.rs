//! The rate limit quota service: each Envoy holds blocks of units, and spends them by itself.
//!
//! `service` has the streams, `envoy` the buckets of one stream, `treatment` what the configuration says about a
//! bucket, `bucket` the blocks of one bucket of one Envoy, `grant` how the store gives one, `leftovers` the
//! blocks of streams that have ended, `trials` the counts of rules in shadow mode, and `answers` what is sent.

mod answers;
mod assignment;
mod bucket;
mod envoy;
mod grant;
mod leftovers;
mod meters;
mod service;
mod treatment;
mod trials;

pub(crate) use self::{answers::Answers, service::QuotaService};
