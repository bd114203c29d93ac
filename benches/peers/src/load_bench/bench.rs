//! What every part of the mode needs.

use std::time::Duration;

use super::site::{Limit, Site, Variant};
use super::tools::Programs;
use crate::{Result, server::Server};

pub struct Bench<'a> {
    pub programs: Programs<'a>,
    /// The path of the example server.
    pub server: &'a str,
    pub redis: &'a Server,
    /// The time of one round of a figure.
    pub slice: Duration,
    pub rounds: u32,
}

impl Bench<'_> {
    /// Starts the example server.
    pub fn start(&self, variant: Variant, limit: Limit) -> Result<Site> {
        Site::start(self.server, variant, self.redis.port(), limit)
    }
}
