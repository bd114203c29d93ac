//! Worlds on all cores: a process for each core, so that worlds share no state, and what they report to the first one.

use std::process::{Command, Stdio};
use std::{env, io, thread};

use crate::plan::{Plan, swarm::Only};
use crate::{known::known, run::Found};

/// The worlds of seeds from `first`, every `step`th.
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) end: u64,
    pub(crate) only: Option<Only>,
}

impl Part {
    /// Runs the worlds in this process, and prints what was found.
    pub(crate) fn run(&self) {
        let (mut found, known) = (Found::default(), known());
        let step = usize::try_from(self.step).unwrap_or(1);
        for seed in (self.first..self.end).step_by(step) {
            found.visit(Plan::draw(seed, self.only), &known);
        }
        found.lines().iter().for_each(|line| println!("{line}"));
    }
}

/// Runs the worlds of `count` seeds from `first` in a process for each core.
pub(crate) fn run(first: u64, count: u64, only: Option<Only>) -> io::Result<Found> {
    let cores = thread::available_parallelism()?.get() as u64;
    let start = |number: u64| {
        let (first, end) = ((first + number).to_string(), (first + count).to_string());
        let mut command = Command::new(env::current_exe()?);
        command.args(["part", &first, &cores.to_string(), &end]).args(only.map(Only::name));
        // Panics are judged, and not printed by those who run into them.
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    };
    let parts = (0..cores).map(start).collect::<io::Result<Vec<_>>>()?;
    let mut found = Found::default();
    for part in parts {
        let output = part.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || !text.lines().all(|line| found.read(line)) {
            return Err(io::Error::other(format!("a process of worlds has failed: {}\n{text}", output.status)));
        }
    }
    found.failures.sort_by_key(|(plan, _)| plan.seed);
    Ok(found)
}
