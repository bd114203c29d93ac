//! What the layer costs a service: ours beside those of governor's family.

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
