//! Worlds that are kept: those that once failed, and those that are known to fail.
//!
//! A known failure that no longer fails is an error as well, so the list can only shrink.

use crate::laws::{Breach, judge};
use crate::plan::{Plan, mode::Mode};
use crate::world;

/// Worlds that once failed: a plan a line.
const ONCE_FAILED: &str = "once_failed.txt";
/// Failures that are known: `law mode: reason` a line, and below it the plan of a world that shows it.
const KNOWN: &str = "known_failures.txt";

/// A failure that is known and not mended yet.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    law: String,
    mode: Mode,
    /// Worlds that show it.
    pub(crate) plans: Vec<Plan>,
    pub(crate) reason: String,
}

impl Known {
    pub(crate) fn is(&self, breach: &Breach) -> bool {
        self.law == breach.law && self.mode == breach.mode
    }

    /// Whether its worlds still show it.
    pub(crate) fn still_fails(&self) -> bool {
        self.plans.iter().any(|plan| judge(plan, &world::run(plan)).iter().any(|breach| self.is(breach)))
    }
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.law, self.mode, self.reason)
    }
}

/// The lines of a list beside this file, without comments.
fn lines(file: &str) -> Vec<String> {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let is_list = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text.lines().map(str::trim).filter(is_list).map(str::to_owned).collect()
}

/// The plans of worlds that once failed.
pub(crate) fn once_failed() -> Vec<Plan> {
    lines(ONCE_FAILED).iter().map(|line| line.parse().expect("once_failed.txt has a plan in each line")).collect()
}

pub(crate) fn known() -> Vec<Known> {
    let mut all: Vec<Known> = vec![];
    for line in lines(KNOWN) {
        if line.starts_with("seed=") {
            let plan = line.parse().expect("known_failures.txt has valid plans");
            all.last_mut().expect("a plan stands below its failure").plans.push(plan);
        } else {
            let (head, reason) = line.split_once(": ").expect("a failure is written as `law mode: reason`");
            let (law, mode) = head.split_once(' ').expect("a failure has a law and a mode");
            let mode = mode.parse().expect("a failure has a mode");
            all.push(Known { law: law.to_owned(), mode, plans: vec![], reason: reason.to_owned() });
        }
    }
    all
}
