//! Key extractors.

mod address_lists;
mod client_ip;
mod custom;
mod fuzz;
mod header;
mod missing;
mod mistakes;
mod path;
mod peer_ip;
mod privacy;
mod reset;
