//! Clients and proxies that others have written: curl, reqwest, urllib3, tonic, nginx.
#![allow(clippy::unwrap_used)]

mod clients;
mod grpc;
mod proxy;
mod support;
