//! Envoy's rate limit service and its quota service over tollgate.
//!
//! `README.md` in this package has how to run it, and `docs/envoy.md` what it does.

mod call;
mod config;
mod follow;
mod grpc;
mod holds;
mod lines;
mod meters;
mod options;
mod prometheus;
mod quota;
mod server;
mod service;
mod warnings;

pub use self::{
    config::{Config, ConfigMistakes},
    options::{Options, USAGE},
    server::Server,
};
