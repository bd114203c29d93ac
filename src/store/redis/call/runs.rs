//! The checks of a call, packed as runs of equal checks. `lua/FORMAT.md` describes the format.

use std::time::Duration;

use super::hold_record;
use super::outgoing::{Committed, Step};
use crate::check::{Charge, Check};
use crate::policy::{Algorithm, BanGrowth, CalendarWindow, HoldSettings, Policy, micros_up};
use crate::store::{CountChange, ban::PolicyCost};

/// How long the receipt of a commit can be named.
pub(super) const RECEIPT_TTL: Duration = Duration::from_secs(20);

/// The most counts of a check, each of which the script calls a charge: 256. A charge has its own count, its holds, its
/// denials and its last ban.
const MOST_COUNTS: usize = 4 * Check::MAX_CHARGES;

/// The numbers of the algorithms.
mod algorithm {
    pub(super) const SLIDING_WINDOW_LOG: u8 = 1;
    pub(super) const SLIDING_WINDOW_COUNTER: u8 = 2;
    pub(super) const FIXED_WINDOW: u8 = 3;
    pub(super) const TOKEN_BUCKET: u8 = 4;
    /// The open holds of the charge before.
    pub(super) const HOLDS: u8 = 8;
    /// Added to the number of an algorithm whose charge is followed by its holds.
    pub(super) const BESIDE_HOLDS: u8 = 8;
    /// The receipt of a commit.
    pub(super) const RECEIPT: u8 = 16;
    /// The length of the last ban.
    pub(super) const LAST_BAN: u8 = 32;
}

/// What the script does with a charge.
pub(super) mod usage {
    /// Commits the charge if the check fits.
    pub(crate) const COMMIT: u8 = 0;
    /// Flag: commits the charge also if the check is denied.
    pub(crate) const COUNT_REJECTED: u8 = 1;
    /// Evaluates the charge and commits nothing, except as [`COUNT_REJECTED`] demands.
    pub(crate) const EVALUATE: u8 = 2;
    /// Refunds an earlier commit.
    pub(crate) const REFUND: u8 = 4;
    /// Counts the denials of the previous charge, which may lead to a ban.
    pub(crate) const BAN: u8 = 8;
    /// Flag: the charge does not decide the check, and is committed only if it fits itself.
    pub(crate) const SHADOW: u8 = 16;
    /// Charges units, whether or not they fit.
    pub(crate) const RECORD: u8 = 32;
    /// Flag: the next charge is an alternative to this one. Of alternatives, the first that fits is committed.
    pub(crate) const HAS_ALTERNATIVE: u8 = 64;
    /// Gives units back.
    pub(crate) const CREDIT: u8 = 33;
    /// Bans the key by hand.
    pub(crate) const BAN_BY_HAND: u8 = 34;
    /// Ends a ban by hand.
    pub(crate) const UNBAN: u8 = 35;
    /// Forgets the count of denials, and reports whether it was full.
    pub(crate) const FORGET_DENIALS: u8 = 36;
    /// Charges as many units as fit.
    pub(crate) const UP_TO: u8 = 38;
}

/// What a call uses. The script creates nothing else.
mod uses {
    /// The flag of an algorithm.
    pub(super) const fn algorithm(number: u8) -> u8 {
        1 << (number - 1)
    }
    /// Receipts and refunds.
    pub(super) const RECEIPTS: u8 = 16;
    pub(super) const SEVERAL_CHARGES: u8 = 32;
    pub(super) const BY_HAND: u8 = 64;
    pub(super) const HOLDS: u8 = 128;
}

/// The checks of a call, packed as runs of equal checks.
pub(super) struct Runs {
    /// What the call uses, and the runs.
    pub(super) packed: Vec<u8>,
    /// Where the last run starts.
    last: usize,
    /// Where the check that is added starts.
    check: usize,
    /// Whether that check has several charges.
    has_several: bool,
    /// The time whose windows the next calendar policies have.
    pub(super) calendar_time_us: u64,
}

impl Runs {
    /// No checks.
    pub(super) fn new() -> Self {
        Self { packed: vec![0], last: 1, check: 1, has_several: false, calendar_time_us: 0 }
    }

    /// Begins a check with this number of charges, as a run of its own.
    pub(super) fn begin(&mut self, charges: usize) {
        self.has_several = charges > 1;
        if self.has_several {
            self.uses(uses::SEVERAL_CHARGES);
        }
        self.check = self.packed.len();
        self.packed.extend_from_slice(&1_u16.to_le_bytes());
        // The most are written as 0.
        let number = if charges == MOST_COUNTS { 0 } else { charges };
        self.packed.push(u8::try_from(number).expect("a check has at most MOST_COUNTS counts"));
    }

    /// Adds a charge to the check. Its holds follow if it is beside holds.
    pub(super) fn add(
        &mut self,
        PolicyCost { policy, cost, is_denied_by_ban }: PolicyCost<'_>,
        step: Step,
        is_beside_holds: bool,
        has_alternative: bool,
    ) {
        // A lone charge is committed exactly if it fits, under a shadow policy too, so it needs no flag.
        let shadow = if policy.is_shadow() && self.has_several { decision_flag(step, usage::SHADOW) } else { 0 };
        let alternative = if has_alternative { decision_flag(step, usage::HAS_ALTERNATIVE) } else { 0 };
        let units = match step {
            Step::ByHand(CountChange::Record(units) | CountChange::Credit(units)) => units.min(Policy::MAX_LIMIT),
            _ => cost,
        };
        self.add_record(policy, usage_of(policy, step) | shadow | alternative, units, is_beside_holds);
        if units == 0 && is_denied_by_ban {
            self.packed.truncate(self.packed.len() - NEGATIVE_ZERO.len());
            self.packed.extend_from_slice(&NEGATIVE_ZERO);
        }
        self.add_extra(step);
    }

    /// Adds the record of a charge. A cost above the largest limit never fits, so its number does not matter.
    pub(super) fn add_record(&mut self, policy: &Policy, usage: u8, units: u64, is_beside_holds: bool) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (algorithm::SLIDING_WINDOW_LOG, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (algorithm::SLIDING_WINDOW_COUNTER, 0),
            Algorithm::FixedWindow => (algorithm::FIXED_WINDOW, 0),
            Algorithm::TokenBucket => (algorithm::TOKEN_BUCKET, policy.capacity()),
        };
        let (window_us, parameter) = match policy.calendar_windows() {
            None => (policy.window_us(), parameter),
            Some(windows) => {
                let CalendarWindow { start_us, end_us } = windows.at(self.calendar_time_us);
                (end_us - start_us, start_us)
            }
        };
        self.uses(uses::algorithm(algorithm));
        let beside = if is_beside_holds { algorithm::BESIDE_HOLDS } else { 0 };
        self.packed.extend_from_slice(&[algorithm + beside, usage]);
        self.packed.extend_from_slice(&double(policy.limit()));
        self.packed.extend_from_slice(&double(window_us));
        self.packed.extend_from_slice(&double(parameter));
        self.packed.extend_from_slice(&double(units.min(Policy::MAX_LIMIT + 1)));
    }

    /// Adds the holds of the charge that was added last.
    pub(super) fn add_holds(&mut self, charge: &Charge, holds: &HoldSettings, step: Step) {
        self.uses(uses::HOLDS);
        let (usage, unsettled, ttl_us, id, actual) = hold_record::record(charge, holds, step);
        self.packed.extend_from_slice(&[algorithm::HOLDS, usage]);
        self.packed.extend_from_slice(&double(unsettled));
        self.packed.extend_from_slice(&double(ttl_us));
        self.packed.extend_from_slice(&id);
        self.packed.extend_from_slice(&double(actual));
        self.add_extra(step);
    }

    /// Adds the length of the last ban, behind the count of denials that was added last.
    pub(super) fn add_growth(&mut self, growth: BanGrowth, step: Step) {
        let usage = if matches!(step, Step::ByHand(_)) { usage::FORGET_DENIALS } else { usage::COMMIT };
        self.packed.extend_from_slice(&[algorithm::LAST_BAN, usage]);
        self.packed.extend_from_slice(&double(growth.longest_us));
        self.packed.extend_from_slice(&double(growth.least_quiet_us));
        self.packed.extend_from_slice(&double(0));
        self.packed.extend_from_slice(&double(0));
        self.add_extra(step);
    }

    /// Adds the receipt of the charges that were added.
    pub(super) fn add_receipt(&mut self, step: Step) {
        self.uses(uses::RECEIPTS);
        let usage = if matches!(step, Step::Refund(_)) { usage::REFUND } else { usage::COMMIT };
        self.packed.extend_from_slice(&[algorithm::RECEIPT, usage]);
        self.packed.extend_from_slice(&double(0));
        self.packed.extend_from_slice(&double(micros_up(RECEIPT_TTL)));
        self.packed.extend_from_slice(&double(0));
        self.packed.extend_from_slice(&double(0));
        self.add_extra(step);
    }

    /// Adds the time of the commit that a refund undoes, or the duration of a ban by hand.
    fn add_extra(&mut self, step: Step) {
        match step {
            Step::ByHand(change) => {
                self.uses(uses::BY_HAND);
                let duration = if let CountChange::Ban(duration) = change { duration } else { Duration::ZERO };
                self.packed.extend_from_slice(&double(micros_up(duration)));
            }
            Step::UpTo => {
                self.uses(uses::BY_HAND);
                self.packed.extend_from_slice(&double(0));
            }
            Step::Refund(committed) => {
                self.uses(uses::RECEIPTS);
                let committed_us = if let Committed::At(time_us) = committed { time_us } else { 0 };
                self.packed.extend_from_slice(&double(committed_us));
            }
            _ => {}
        }
    }

    /// Ends the check, which joins the last run if it is equal to the checks of that run.
    pub(super) fn end(&mut self) {
        let (runs, check) = self.packed.split_at_mut(self.check);
        if let Some((checks, charges)) = runs.get_mut(self.last..).and_then(|run| run.split_first_chunk_mut())
            && *charges == check[checks.len()..]
            && let Some(more) = u16::from_le_bytes(*checks).checked_add(1)
        {
            *checks = more.to_le_bytes();
            self.packed.truncate(self.check);
        } else {
            self.last = self.check;
        }
    }

    fn uses(&mut self, flag: u8) {
        self.packed[0] |= flag;
    }
}

/// The cost of a request that costs nothing, and that a ban denies.
const NEGATIVE_ZERO: [u8; 8] = (-0.0_f64).to_le_bytes();

/// The usage of a policy in one step.
fn usage_of(policy: &Policy, step: Step) -> u8 {
    let commit = match policy.denials_counted() {
        _ if policy.is_ban() => usage::BAN,
        true => usage::COMMIT | usage::COUNT_REJECTED,
        false => usage::COMMIT,
    };
    match step {
        Step::Commit | Step::CommitPart(_) | Step::Change(_) => commit,
        Step::ByHand(CountChange::Record(_)) => usage::RECORD,
        Step::ByHand(CountChange::Credit(_)) => usage::CREDIT,
        Step::ByHand(CountChange::Ban(_)) => usage::BAN_BY_HAND,
        Step::ByHand(CountChange::Unban) if policy.is_ban() => usage::FORGET_DENIALS,
        Step::ByHand(CountChange::Unban) => usage::UNBAN,
        Step::Evaluate | Step::Alone(_) => usage::EVALUATE,
        Step::Reject if policy.is_ban() => commit,
        Step::Reject => usage::EVALUATE | commit,
        Step::UpTo if policy.is_ban() => commit,
        Step::UpTo => usage::UP_TO | commit,
        Step::Refund(_) => usage::REFUND,
    }
}

/// A flag that decides, in one step. A refund and a change by hand decide nothing.
fn decision_flag(step: Step, flag: u8) -> u8 {
    match step {
        Step::ByHand(_) | Step::UpTo | Step::Refund(_) | Step::Alone(_) => 0,
        _ => flag,
    }
}

/// Packs a number as a double. Windows are validated to be below 2^53 microseconds, so no digit is lost.
#[expect(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::redis::call::hold_record::usage as usage_of_holds;

    const FORMAT: &str = include_str!("../../../../lua/FORMAT.md");
    const SCRIPT: &str = include!("../../../../lua/script.rs");

    type Numbers = BTreeMap<&'static str, u8>;

    macro_rules! numbers {
        ($module:ident: $($name:ident),*) => { Numbers::from([$((stringify!($name), $module::$name)),*]) };
    }

    /// The numbers of the table with this heading.
    fn table(heading: &str) -> Numbers {
        let heading = format!("| {heading} | value |");
        let rows = FORMAT.lines().skip_while(|line| !line.starts_with(&heading)).skip(2);
        rows.take_while(|line| line.starts_with('|'))
            .map(|row| {
                let cells: Vec<_> = row.split('|').map(str::trim).collect();
                (cells[1].trim_matches('`'), cells[2].parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn every_number_of_the_format_is_the_same_in_rust_and_lua() {
        let algorithms = numbers!(algorithm: SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET,
            HOLDS, BESIDE_HOLDS, RECEIPT, LAST_BAN);
        let usages = numbers!(usage: COMMIT, COUNT_REJECTED, EVALUATE, REFUND, BAN, SHADOW, RECORD, CREDIT, BAN_BY_HAND,
            UNBAN, FORGET_DENIALS, UP_TO, HAS_ALTERNATIVE);
        let usages_of_holds = numbers!(usage_of_holds: CHECK, SETTLE, RENEW, ALONE, COUNT_DENIAL);
        let mut flags = numbers!(uses: RECEIPTS, SEVERAL_CHARGES, BY_HAND, HOLDS);
        let counts = algorithms.iter().filter(|(_, number)| **number < algorithm::HOLDS);
        flags.extend(counts.map(|(name, number)| (*name, uses::algorithm(*number))));
        for (heading, numbers) in
            [("algorithm", &algorithms), ("usage", &usages), ("usage of holds", &usages_of_holds), ("flag", &flags)]
        {
            assert_eq!(&table(heading), numbers, "{heading}");
        }

        let named: Numbers = algorithms.into_iter().chain(usages).chain(usages_of_holds).collect();
        let mut compared = 0;
        for line in SCRIPT.lines() {
            let Some((names, values)) =
                line.trim_start().strip_prefix("local ").and_then(|line| line.split_once(" = "))
            else {
                continue;
            };
            for (name, value) in names.split(", ").zip(values.split(", ")) {
                if let Some(number) = named.get(name) {
                    assert_eq!(value, number.to_string(), "{line}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 30, "{compared} numbers of the script were compared");
    }
}
