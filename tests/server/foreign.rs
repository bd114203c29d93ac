//! Tests with third-party clients and proxies: curl, reqwest, urllib3, tonic, nginx.
#![allow(clippy::unwrap_used)]

mod clients;
mod grpc;
mod proxy;
mod support;
