//! Simulated worlds: the crate and its script among simulated servers, networks, clocks and processes. A seed, or a
//! plan in a line of text, repeats a world byte for byte. CONTRIBUTING.md says how to read one that fails.

mod callers;
mod changes;
mod compare;
mod coverage;
mod fleet;
mod history;
mod keys;
mod known;
mod laws;
mod network;
mod place;
mod plan;
mod process;
mod random;
mod rare;
mod run;
mod server;
mod service;
mod shrink;
mod time;
mod world;

use std::{process::ExitCode, time::Instant};

use crate::fleet::Part;
use crate::plan::{Plan, swarm::Only};
use crate::run::{Found, describe, summary, timeline};

const USAGE: &str = "usage: tollgate-worlds FIRST COUNT [WHAT]   the worlds of these seeds, all with this mode or fault
       tollgate-worlds plan PLAN            the timeline of one world
       tollgate-worlds trace FIRST COUNT    a line for each world: its hash
       tollgate-worlds until FIRST COUNT    the same, up to the first failure
       tollgate-worlds kept                 worlds that once failed, and those that are known to fail
       tollgate-worlds compare SEED COUNT   random calls of the script, here and in redis-server";

/// Runs the program.
pub fn run_program(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["plan", rest @ ..] => rest.join(" ").parse().map(|plan: Plan| {
            timeline(&plan, usize::MAX).iter().for_each(|line| println!("{line}"));
            true
        }),
        ["trace", first, count] => numbers(first, count).map(|(first, count)| {
            for seed in first..first + count {
                let plan = Plan::draw(seed, None);
                println!("{}: {plan}", summary(&world::run(&plan)));
            }
            true
        }),
        ["until", first, count] => numbers(first, count).and_then(|(first, count)| until(first, count)),
        ["kept"] => Ok(kept()),
        ["compare", seed, count] => numbers(seed, count).and_then(|(seed, count)| compare::with_redis(seed, count)),
        ["part", first, step, end, rest @ ..] => part(first, step, end, rest),
        [first, count] => numbers(first, count).and_then(|(first, count)| many(first, count, None)),
        [first, count, only] => {
            numbers(first, count).and_then(|(first, count)| many(first, count, Some(only.parse()?)))
        }
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn numbers(first: &str, count: &str) -> Result<(u64, u64), String> {
    match (first.parse(), count.parse()) {
        (Ok(first), Ok(count)) => Ok((first, count)),
        _ => Err(USAGE.to_owned()),
    }
}

/// The most failures that are shrunk and described.
const DESCRIBED: usize = 5;

/// Runs the worlds of seeds. Returns whether all is well.
fn many(first: u64, count: u64, only: Option<Only>) -> Result<bool, String> {
    let started = Instant::now();
    let found = fleet::run(first, count, only).map_err(|error| error.to_string())?;
    let Found { worlds, failures, known, coverage, commands } = found;
    for (plan, breaches) in failures.iter().take(DESCRIBED) {
        println!("{}", describe(plan, breaches));
    }
    for (plan, breaches) in failures.iter().skip(DESCRIBED) {
        println!("FAILED {plan}");
        breaches.iter().for_each(|breach| println!("  {breach}"));
    }
    println!("{}", coverage.table());
    let missing = if only.is_none() && count >= ENOUGH_FOR_COVERAGE { coverage.missing(worlds) } else { vec![] };
    missing.iter().for_each(|missing| println!("NOT COVERED {missing}"));
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{worlds} worlds from seed {first}, {commands} commands, {seconds:.1} s, {:.1} a second: {} failed, {known} with \
         known failures only",
        worlds as f64 / seconds,
        failures.len(),
    );
    Ok(failures.is_empty() && missing.is_empty())
}

/// The number of worlds that are run before it is seen whether one has failed.
const AT_ONCE: u64 = 50;

/// Runs the worlds of seeds up to the first failure, and prints it in a line. Returns whether all is well.
fn until(first: u64, count: u64) -> Result<bool, String> {
    for begun in (0..count).step_by(usize::try_from(AT_ONCE).unwrap_or(1)) {
        let many = AT_ONCE.min(count - begun);
        let Ok(found) = fleet::run(first + begun, many, None) else {
            // A panic in a destructor, while another one unwinds: nothing has said in which world.
            println!("{} no-abort all: the process of a world has ended\n-", begun + many);
            return Ok(false);
        };
        if let Some((plan, breaches)) = found.failures.first() {
            let worlds = plan.seed - first + 1;
            breaches.iter().take(1).for_each(|breach| println!("{worlds} {breach}\n{plan}"));
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of worlds from which on coverage is required.
const ENOUGH_FOR_COVERAGE: u64 = 400;

/// Runs the worlds of one process of a fleet.
fn part(first: &str, step: &str, end: &str, rest: &[&str]) -> Result<bool, String> {
    let ((first, step), (end, _)) = (numbers(first, step)?, numbers(end, "0")?);
    let only = rest.first().map(|mode| mode.parse()).transpose()?;
    Part { first, step, end, only }.run();
    Ok(true)
}

/// Runs the worlds that are kept. Returns whether those that once failed hold, and those that are known to fail do.
fn kept() -> bool {
    let (plans, known, mut found) = (known::once_failed(), known::known(), Found::default());
    for plan in &plans {
        found.visit(plan.clone(), &known);
    }
    found.failures.iter().for_each(|(plan, breaches)| println!("{}", describe(plan, breaches)));
    let mended: Vec<_> = known.iter().filter(|known| !known.still_fails()).collect();
    for known in &mended {
        println!(
            "MENDED {known}: delete it from tests/worlds/known_failures.txt, and keep its plan in once_failed.txt"
        );
    }
    println!(
        "{} worlds that once failed, {} failed again; {} known failures, {} no longer show",
        plans.len(),
        found.failures.len(),
        known.len(),
        mended.len()
    );
    found.failures.is_empty() && mended.is_empty()
}
