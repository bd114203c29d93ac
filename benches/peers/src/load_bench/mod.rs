//! The example server under the load generators of others, with the layer and without.

mod bench;
mod chart;
mod counts;
mod latency;
mod outcome;
mod page;
mod readers;
mod site;
mod tools;

use std::time::Duration;

use self::{bench::Bench, tools::Programs};
use crate::{ROUNDS, Result, args::Args, report::Report, server::Server};

pub fn run(args: &Args, redis: &Server, report: &mut Report) -> Result<()> {
    let server = args.server.as_deref().ok_or("mode load needs --server PATH: benches/load builds and passes it")?;
    let programs = Programs::find(args, report)?;
    let slice = Duration::from_secs_f64(args.seconds) / ROUNDS;
    let bench = Bench { programs, server, redis, slice, rounds: if args.quick { 1 } else { ROUNDS } };
    counts::run(&bench, report)?;
    let rates = latency::capacities(&bench, report)?;
    let curves = latency::curves(&bench, &rates, report)?;
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::draw(&curves, &redis.version()?))?;
    }
    if let Some(path) = &args.page {
        page::write(path, &bench, &curves, &rates)?;
    }
    Ok(())
}
