//! Key extractors.

mod client_ip;
mod custom;
mod denied;
mod fuzz;
mod header;
mod missing;
mod path;
mod peer_ip;
mod privacy;
mod reset;
