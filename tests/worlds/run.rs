//! What was found in worlds.

use crate::laws::{Breach, judge};
use crate::world::{self, Report};
use crate::{coverage::Coverage, known::Known, place::Place, plan::Plan, shrink::shrink};

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) worlds: u64,
    /// Failures that are not known: the plan, and the laws that broke.
    pub(crate) failures: Vec<(Plan, Vec<Breach>)>,
    /// The number of worlds with nothing but known failures.
    pub(crate) known: u64,
    pub(crate) commands: u64,
    pub(crate) coverage: Coverage,
}

impl Found {
    /// Runs the world of a plan.
    pub(crate) fn visit(&mut self, plan: Plan, known: &[Known]) {
        let report = world::run(&plan);
        let breaches = judge(&plan, &report);
        self.worlds += 1;
        self.commands += report.commands;
        self.coverage.add(&plan, &report);
        let is_known = |breach: &Breach| known.iter().any(|known| known.is(breach));
        let has_failed = !breaches.is_empty();
        let unknown: Vec<Breach> = breaches.into_iter().filter(|breach| !is_known(breach)).collect();
        if !unknown.is_empty() {
            self.failures.push((plan, unknown));
        } else if has_failed {
            self.known += 1;
        }
    }

    /// All of this in lines, for [`Found::read`].
    pub(crate) fn lines(&self) -> Vec<String> {
        let counts = format!("counts {} {} {}", self.worlds, self.known, self.commands);
        let mut lines = vec![counts];
        for (plan, breaches) in &self.failures {
            lines.push(format!("failed {plan}"));
            lines.extend(breaches.iter().map(|breach| format!("breach {breach}")));
        }
        lines.extend(self.coverage.lines());
        lines
    }

    /// Adds a line of another process. Returns whether it was understood.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        let Some((word, rest)) = line.split_once(' ') else { return false };
        match word {
            "counts" => {
                let mut numbers = rest.split(' ').filter_map(|number| number.parse::<u64>().ok());
                for count in [&mut self.worlds, &mut self.known, &mut self.commands] {
                    *count += numbers.next().unwrap_or(0);
                }
                true
            }
            "failed" => rest.parse().map(|plan| self.failures.push((plan, vec![]))).is_ok(),
            "breach" => match (Breach::read(rest), self.failures.last_mut()) {
                (Some(breach), Some((_, breaches))) => {
                    breaches.push(breach);
                    true
                }
                _ => false,
            },
            _ => self.coverage.read(word, rest),
        }
    }
}

/// A failure in words: what broke, the smallest plan that still fails, and what happened in it.
pub(crate) fn describe(plan: &Plan, breaches: &[Breach]) -> String {
    let mut lines = vec![format!("FAILED {plan}")];
    lines.extend(breaches.iter().map(|breach| format!("  {breach}")));
    if let Some(breach) = breaches.first() {
        let small = shrink(plan, breach);
        lines.push(format!("  smallest: {small}"));
        lines.extend(timeline(&small, LAST).into_iter().map(|line| format!("    {line}")));
    }
    lines.join("\n")
}

/// The last events of a world that are printed with its failure.
const LAST: usize = 60;

/// What happened in a world: faults and calls in the order of their ends, and the laws that broke.
pub(crate) fn timeline(plan: &Plan, last: usize) -> Vec<String> {
    let report = world::run(plan);
    let mut events: Vec<(u64, String)> = report.timeline.clone();
    events.extend(report.calls.iter().map(|call| {
        let work = call.worked.map_or_else(String::new, |(begun, ended)| format!(", worked {begun} to {ended}"));
        let Place { process, runtime } = call.place;
        let who = format!("process {process}.{runtime} {}-{} cost {}", call.mode, call.key, call.cost);
        (call.answered, format!("{who} asked at {}: {:?}{work}", call.asked, call.outcome))
    }));
    events.extend(report.changes.iter().map(|change| {
        let Place { process, runtime } = change.place;
        let who = format!("process {process}.{runtime} {}-{}", change.mode, change.key);
        (
            change.answered,
            format!("{who} {:?} {} asked at {}: {:?}", change.what, change.units, change.asked, change.end),
        )
    }));
    events.sort();
    let skipped = events.len().saturating_sub(last);
    let mut lines = vec![format!("{skipped} events before, {}", summary(&report))];
    lines.extend(events[skipped..].iter().map(|(at, text)| format!("{at:6} {text}")));
    lines.extend(judge(plan, &report).iter().map(ToString::to_string));
    lines
}

/// A world in a line.
pub(crate) fn summary(report: &Report) -> String {
    let denied = report.calls.iter().filter(|call| call.is_denied()).count();
    let (calls, commands, dials) = (report.calls.len(), report.commands, report.dials);
    let (tasks, connections) = (&report.ending.tasks, &report.ending.connections);
    let counts = format!("{calls} calls, {denied} denied, {commands} commands, {dials} dials");
    format!("{counts}, tasks {tasks:?}, connections {connections:?}, trace {:016x}", report.trace)
}
