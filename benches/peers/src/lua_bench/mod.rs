//! Time and memory of a decision in Redis: tollgate's script beside plain scripts.

mod columns;
mod fills;
mod subject;
mod traffic;
mod workload;

use std::time::Duration;

use self::subject::{CONSTANT_STATE, Hosted, LOGS};
pub use self::{
    subject::{LOG, Subject},
    workload::{Scenario, Workload},
};
use crate::{ROUNDS, Result, args::Args, report::Report};

/// Returns the version of Redis.
pub fn run(args: &Args, report: &mut Report) -> Result<String> {
    let (mut logs, mut constant_state) = (start(&LOGS)?, start(&CONSTANT_STATE)?);
    let version = logs[0].server.version()?;
    let slice = Duration::from_secs_f64(args.seconds / f64::from(ROUNDS));
    fills::logs(&mut logs, args, slice, report)?;
    fills::constant_state(&mut constant_state, slice, report)?;
    logs.append(&mut constant_state);
    columns::run(&mut logs, args.seconds, report)?;
    Ok(version)
}

fn start(subjects: &[Subject]) -> Result<Vec<Hosted>> {
    subjects.iter().map(|subject| Hosted::start(*subject)).collect()
}
