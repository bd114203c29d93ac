//! Benchmarks of tollgate beside other rate limiters, on one machine in one run.
//!
//! Every figure is a median of interleaved rounds: each variant runs for a short slice in every round, so that other
//! load on the machine affects all variants alike. Absolute figures depend on the machine; ratios carry over to other
//! machines.

mod args;
mod cluster_bench;
mod endpoint;
mod fill_bench;
mod hot_bench;
mod http_bench;
#[allow(dead_code, reason = "the server tests use the rest of this module")]
#[path = "../../../tests/server/support/link.rs"]
mod link;
mod load_bench;
mod lua_bench;
mod memory_bench;
mod network_bench;
mod outage_bench;
mod poll;
mod queue_bench;
mod random;
mod redis_bench;
mod report;
mod scripts;
mod server;
mod stats;
mod svg;

use std::{env, process::ExitCode};

use self::args::{Args, Mode};
use self::{redis_bench::Servers, report::Report, server::Server};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, BoxError>;

/// Number of interleaved rounds. Every figure is the median over the rounds.
pub const ROUNDS: u32 = 5;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = env::args().skip(1).peekable();
    if args.next_if(|mode| mode == hot_bench::WORKER).is_some() {
        return hot_bench::run_worker(args.collect());
    }
    let args = Args::parse(args)?;
    let mut report = Report::default();
    let redis_version = match args.mode {
        Mode::Redis => {
            let servers = Servers::start(&args, &mut report)?;
            redis_bench::run(&args, &servers, &mut report)?;
            Some(servers.redis.version()?)
        }
        Mode::Cluster => Some(cluster_bench::run(&args, &mut report)?),
        Mode::Shards => Some(cluster_bench::shards::run(&args, &mut report)?),
        Mode::Hot => {
            let servers = Servers::start(&args, &mut report)?;
            hot_bench::run(&args, &servers, &mut report)?;
            Some(servers.redis.version()?)
        }
        Mode::Lua => Some(lua_bench::run(&args, &mut report)?),
        Mode::Memory => {
            memory_bench::run(&args, &mut report)?;
            None
        }
        Mode::Http => {
            http_bench::run(&args, &mut report)?;
            None
        }
        Mode::Network => {
            let server = Server::redis(None)?;
            network_bench::run(&args, &server, &mut report)?;
            Some(server.version()?)
        }
        Mode::Fill => {
            let server = Server::redis(None)?;
            fill_bench::run(&args, &server, &mut report)?;
            Some(server.version()?)
        }
        Mode::Outage => {
            let server = Server::redis(None)?;
            outage_bench::run(&args, &server, &mut report)?;
            Some(server.version()?)
        }
        Mode::Queue => {
            let server = Server::redis(None)?;
            queue_bench::run(&args, &server, &mut report)?;
            Some(server.version()?)
        }
        Mode::Load => {
            let server = Server::redis(None)?;
            load_bench::run(&args, &server, &mut report)?;
            Some(server.version()?)
        }
    };
    report.finish(&args, redis_version)
}
