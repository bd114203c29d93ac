//! Which faults have met which modes, which answers servers have given, and which rare paths were taken.

use std::{collections::BTreeMap, fmt::Write};

use crate::history::{Call, Outcome};
use crate::plan::{Plan, fault::Kind, mode::Mode, swarm::can_meet};
use crate::{rare, world::Report};

#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    met: BTreeMap<(Kind, Mode), u64>,
    answers: BTreeMap<String, u64>,
    outcomes: BTreeMap<(Mode, &'static str), u64>,
    paths: BTreeMap<String, u64>,
}

const OUTCOMES: [&str; 4] = ["admitted", "denied", "failed", "gone"];

/// The answers that servers have to have given.
const ANSWERS: [&str; 14] = [
    "OK",
    "NOSCRIPT",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "LOADING",
    "BUSY",
    "CLUSTERDOWN",
    "READONLY",
    "OOM",
    "NOREPLICAS",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
];

/// The number of worlds beyond which every pair has to have met.
const ENOUGH: u64 = 5_000;

impl Coverage {
    pub(crate) fn add(&mut self, plan: &Plan, report: &Report) {
        for fault in &report.faults {
            let during = |mode: &Mode| {
                let overlaps = |from: u64, to: u64| from <= fault.end() && fault.at <= to;
                // A slot is renewed while its work lasts.
                let until = |call: &Call| call.worked.map_or(call.answered, |(_, ended)| ended);
                report.calls.iter().any(|call| call.mode == *mode && overlaps(call.asked, until(call)))
            };
            for mode in plan.modes.iter().filter(|mode| during(mode)) {
                *self.met.entry((fault.kind, *mode)).or_default() += 1;
            }
        }
        for (word, count) in &report.answers {
            *self.answers.entry(word.clone()).or_default() += count;
        }
        for (path, count) in &report.paths {
            *self.paths.entry((*path).to_owned()).or_default() += count;
        }
        for call in &report.calls {
            let outcome = match call.outcome {
                Outcome::Admitted { .. } => "admitted",
                Outcome::Denied { .. } => "denied",
                Outcome::Failed { .. } => "failed",
                Outcome::Gone => "gone",
            };
            *self.outcomes.entry((call.mode, outcome)).or_default() += 1;
        }
    }

    /// All counts in lines, for [`Coverage::read`].
    pub(crate) fn lines(&self) -> Vec<String> {
        let met = self.met.iter().map(|((kind, mode), count)| format!("met {} {mode} {count}", kind.name()));
        let answers = self.answers.iter().map(|(word, count)| format!("answer - {word} {count}"));
        let outcomes = self.outcomes.iter().map(|((mode, outcome), count)| format!("outcome {outcome} {mode} {count}"));
        let paths = self.paths.iter().map(|(path, count)| format!("path - {path} {count}"));
        met.chain(answers).chain(outcomes).chain(paths).collect()
    }

    /// Adds a line of another process. Returns whether it was understood.
    pub(crate) fn read(&mut self, what: &str, rest: &str) -> bool {
        let words: Vec<&str> = rest.split(' ').collect();
        let [first, second, count] = words.as_slice() else { return false };
        let (Ok(count), mode) = (count.parse::<u64>(), second.parse::<Mode>()) else { return false };
        let place = match (what, mode) {
            ("met", Ok(mode)) => {
                let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == *first) else { return false };
                self.met.entry((kind, mode)).or_default()
            }
            ("outcome", Ok(mode)) => {
                let Some(outcome) = OUTCOMES.into_iter().find(|outcome| outcome == first) else { return false };
                self.outcomes.entry((mode, outcome)).or_default()
            }
            ("path", _) => self.paths.entry((*second).to_owned()).or_default(),
            ("answer", _) => self.answers.entry((*second).to_owned()).or_default(),
            _ => return false,
        };
        *place += count;
        true
    }

    /// What was not met and had to be.
    pub(crate) fn missing(&self, worlds: u64) -> Vec<String> {
        let mut missing = vec![];
        for mode in Mode::ALL {
            for outcome in ["admitted", "denied"] {
                // Their limits are too high to deny.
                let is_high = matches!(mode, Mode::Tally | Mode::Bill | Mode::WebBill | Mode::MemoryBill);
                let never = outcome == "denied" && (is_high || mode == Mode::Told);
                if !never && !self.outcomes.contains_key(&(mode, outcome)) {
                    missing.push(format!("no call of {mode} was {outcome}"));
                }
            }
        }
        for kind in Kind::ALL {
            let met = |mode: &Mode| self.met.contains_key(&(kind, *mode));
            if !Mode::ALL.iter().any(met) {
                missing.push(format!("{} met no mode", kind.name()));
            } else if worlds >= ENOUGH {
                let unmet = |mode: &&Mode| !met(mode) && can_meet(kind, **mode);
                missing.extend(Mode::ALL.iter().filter(unmet).map(|mode| format!("{} never met {mode}", kind.name())));
            }
        }
        let paths = rare::PATHS.iter().filter(|path| !self.paths.contains_key(**path));
        missing.extend(paths.map(|path| format!("no world took the path {path}")));
        missing.extend(
            ANSWERS.iter().filter(|word| self.is_unseen(word)).map(|word| format!("no server answered {word}")),
        );
        missing
    }

    fn is_unseen(&self, word: &str) -> bool {
        !self.answers.contains_key(word)
    }

    /// The table of modes by faults.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:18}", "");
        let short = |mode: Mode| mode.name().replace("local-", "l-").chars().take(7).collect::<String>();
        for mode in Mode::ALL {
            let _ = write!(table, "{:>8}", short(mode));
        }
        for kind in Kind::ALL {
            let _ = write!(table, "\n{:18}", kind.name());
            for mode in Mode::ALL {
                let _ = write!(table, "{:8}", self.met.get(&(kind, mode)).copied().unwrap_or(0));
            }
        }
        for outcome in OUTCOMES {
            let _ = write!(table, "\n{outcome:18}");
            for mode in Mode::ALL {
                let _ = write!(table, "{:8}", self.outcomes.get(&(mode, outcome)).copied().unwrap_or(0));
            }
        }
        let answers: Vec<String> = self.answers.iter().map(|(word, count)| format!("{word} {count}")).collect();
        let _ = write!(table, "\nanswers of servers: {}", answers.join(", "));
        let paths: Vec<String> = self.paths.iter().map(|(path, count)| format!("{path} {count}")).collect();
        let _ = write!(table, "\nrare paths: {}", paths.join(", "));
        table
    }
}
