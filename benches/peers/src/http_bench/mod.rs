//! The time that a rate limiting layer adds to a service: tollgate beside the layers that build on governor.

mod bare;
mod layers;
mod server;

use std::time::Duration;

use crate::{Result, args::Args, report::Report};

pub fn run(args: &Args, report: &mut Report) -> Result<()> {
    let time = Duration::from_secs_f64(args.seconds);
    bare::run(time, report)?;
    server::run(time, report)
}
