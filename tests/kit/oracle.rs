//! The oracle of laws 1 and 12: a list of charges, and sums over the list.

use std::time::Duration;

use tollgate::{Algorithm, Policy};

/// The largest limit.
const MOST: u128 = Policy::MAX_LIMIT as u128;

/// Units that were charged, or given back.
#[derive(Clone, Debug)]
struct Charge {
    at_us: u64,
    /// When the charge leaves the window of a log.
    leaves_us: u64,
    cost: u64,
    kind: Kind,
    policy: Policy,
    /// The highest limit among the charges since the log was last empty, this charge included.
    highest: u64,
}

/// How a charge came about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Admitted,
    /// A rejection that was counted.
    Rejected,
    /// Units that are given back to a bucket.
    Credited,
}

/// The charges of one key under policies with one algorithm, window and resolution: what a store should decide.
///
/// The oracle is slow and simple, and shares no design with the stores: it drops no charge, keeps no totals, and finds
/// a wait by bisection. It knows nothing of bans. Times are microseconds since the Unix epoch and must not decrease.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Policy;
/// use tollgate_testing::Oracle;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let policy = Policy::new("p", 10, Duration::from_secs(1))?;
/// let mut oracle = Oracle::default();
/// oracle.charge(&policy, 5_000_000, 7, true);
/// assert_eq!(oracle.available(&policy, 5_400_000), 3);
/// assert_eq!(oracle.wait(&policy, 5_400_000, 4), Duration::from_micros(600_000));
/// assert!(oracle.fits(&policy, 6_000_000, 10));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Oracle {
    resolution_us: u64,
    charges: Vec<Charge>,
    /// The starts of the windows of a calendar, in order.
    starts_us: Vec<u64>,
}

impl Default for Oracle {
    /// Creates an oracle for policies without a resolution.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Oracle {
    /// Creates an oracle for policies with this [resolution](Policy::with_resolution), in microseconds. At least 1,
    /// which is exact.
    pub fn new(resolution_us: u64) -> Self {
        Self { resolution_us: resolution_us.max(1), charges: Vec::new(), starts_us: Vec::new() }
    }

    /// Creates an oracle for policies of one [calendar](Policy::calendar), whose windows start at these times, in
    /// microseconds and in order. The first one is before all charges, and the last window does not end.
    pub fn of_calendar(starts_us: Vec<u64>) -> Self {
        Self { starts_us, ..Self::default() }
    }

    /// The start of the window of a time, for algorithms with windows.
    fn start_us(&self, policy: &Policy, now_us: u64) -> u64 {
        let started = self.starts_us.partition_point(|start_us| *start_us <= now_us);
        started.checked_sub(1).map(|last| self.starts_us[last]).unwrap_or_else(|| now_us - now_us % window_us(policy))
    }

    /// Charges `cost`; more than the largest limit affects no decision. `admitted` is false for a rejection that a
    /// policy [counts](Policy::with_denials_counted).
    pub fn charge(&mut self, policy: &Policy, at_us: u64, cost: u64, admitted: bool) {
        let (cost, leaves_us) =
            (cost.min(Policy::MAX_LIMIT), at_us.next_multiple_of(self.resolution_us) + window_us(policy));
        let live = self.charges.last().filter(|charge| charge.leaves_us > at_us);
        let highest = live.map_or(0, |charge| charge.highest).max(policy.limit());
        let kind = if admitted { Kind::Admitted } else { Kind::Rejected };
        self.charges.push(Charge { at_us, leaves_us, cost, kind, policy: policy.clone(), highest });
    }

    /// Gives up to `units` back: the youngest in the window of a log, those of the current and then of the previous
    /// window of a counter. A bucket refills by them. Returns how many were given back.
    pub fn credit(&mut self, policy: &Policy, at_us: u64, units: u64) -> u64 {
        let start_us = self.start_us(policy, at_us);
        let (window_us, units) = (window_us(policy), units.min(Policy::MAX_LIMIT));
        let in_window = |charge: &Charge, windows: u64| {
            charge.at_us + windows * window_us >= start_us && (windows == 0 || charge.at_us < start_us)
        };
        if policy.algorithm() == Algorithm::SlidingWindowLog {
            self.forget_excess(at_us);
        }
        let mut left = units;
        let mut take = |charge: &mut Charge| {
            let taken = left.min(charge.cost);
            (left, charge.cost) = (left - taken, charge.cost - taken);
        };
        match policy.algorithm() {
            Algorithm::SlidingWindowLog => {
                // The log still remembers the highest limit that has charged it, unless it is empty.
                let highest = self.charges.last().map_or(0, |charge| charge.highest);
                self.charges.iter_mut().rev().filter(|charge| charge.leaves_us > at_us).for_each(&mut take);
                self.charges.retain(|charge| charge.cost > 0);
                if let Some(last) = self.charges.last_mut() {
                    last.highest = highest;
                }
            }
            Algorithm::FixedWindow => {
                self.charges.iter_mut().filter(|charge| in_window(charge, 0)).for_each(&mut take);
            }
            Algorithm::SlidingWindowCounter => {
                for windows in [0, 1] {
                    self.charges.iter_mut().filter(|charge| in_window(charge, windows)).for_each(&mut take);
                }
            }
            _ => {
                let missing = self.debt(policy, at_us).div_ceil(u128::from(window_us));
                left -= u64::try_from(missing).map_or(units, |missing| missing.min(units));
                let (policy, leaves_us, cost) = (policy.clone(), at_us + window_us, units);
                self.charges.push(Charge { at_us, leaves_us, cost, kind: Kind::Credited, policy, highest: 0 });
            }
        }
        units - left
    }

    /// The oldest of more units in a log than the largest limit affect no decision, and leave first.
    fn forget_excess(&mut self, at_us: u64) {
        let excess = self.sum(|charge| charge.leaves_us > at_us).saturating_sub(MOST);
        let mut excess = u64::try_from(excess).expect("a test charges less than 2^64 units");
        for charge in self.charges.iter_mut().filter(|charge| charge.leaves_us > at_us) {
            let taken = excess.min(charge.cost);
            (excess, charge.cost) = (excess - taken, charge.cost - taken);
        }
    }

    /// Whether `cost` fits at that time.
    pub fn fits(&self, policy: &Policy, now_us: u64, cost: u64) -> bool {
        let start_us = self.start_us(policy, now_us);
        let window_us = window_us(policy);
        let current = || self.sum(|charge| charge.at_us >= start_us);
        let spent = match policy.algorithm() {
            Algorithm::SlidingWindowLog => self.sum(|charge| charge.leaves_us > now_us),
            Algorithm::FixedWindow => current(),
            Algorithm::SlidingWindowCounter => {
                let previous = self.sum(|charge| charge.at_us < start_us && charge.at_us + window_us >= start_us);
                let left_us = u128::from(start_us + window_us - now_us);
                previous * left_us / u128::from(window_us) + current()
            }
            _ => return cost == 0 || self.debt(policy, now_us) + time(policy, cost) <= time(policy, policy.capacity()),
        };
        cost == 0 || spent + u128::from(cost) <= policy.limit().into()
    }

    /// The largest cost that fits.
    pub fn available(&self, policy: &Policy, now_us: u64) -> u64 {
        let (mut most, mut too_much) = (0, policy.capacity() + 1);
        while too_much - most > 1 {
            let cost = most.midpoint(too_much);
            let fits = self.fits(policy, now_us, cost);
            *if fits { &mut most } else { &mut too_much } = cost;
        }
        most
    }

    /// How long `cost` has to wait. Without charges a count only falls, so bisection finds the first instant.
    pub fn wait(&self, policy: &Policy, now_us: u64, cost: u64) -> Duration {
        if self.fits(policy, now_us, cost) {
            return Duration::ZERO;
        }
        let (mut early, mut late) = (0, 1);
        while !self.fits(policy, now_us + late, cost) {
            (early, late) = (late, late * 2);
        }
        while late - early > 1 {
            let wait = early.midpoint(late);
            *if self.fits(policy, now_us + wait, cost) { &mut late } else { &mut early } = wait;
        }
        Duration::from_micros(late)
    }

    /// The admitted charges only.
    pub fn admitted(&self) -> Self {
        let mut admitted = self.clone();
        admitted.charges.retain(|charge| charge.kind == Kind::Admitted);
        admitted
    }

    /// Whether a limit at least as high as this policy's has charged before every counted denial in the window.
    ///
    /// A log drops rejections beyond the highest limit that has charged, otherwise denied traffic would fill its
    /// memory. A higher limit that charges later does not see the dropped rejections.
    pub fn remembers_all_for(&self, policy: &Policy, now_us: u64) -> bool {
        let live = |charge: &&Charge| charge.kind == Kind::Rejected && charge.leaves_us > now_us;
        policy.algorithm() != Algorithm::SlidingWindowLog
            || self.charges.iter().filter(live).all(|charge| charge.highest >= policy.limit())
    }

    /// Law 1: the admitted cost is within the limit of the last admission's policy.
    pub fn keeps_law_1(&self) -> bool {
        let mut before = self.admitted();
        let Some(last) = before.charges.pop() else { return true };
        let (policy, now_us) = (&last.policy, last.at_us);
        let recent = |charge: &Charge| charge.at_us + window_us(policy) > now_us;
        match policy.algorithm() {
            // Uses the exact admission times, not the stamps rounded to the resolution.
            Algorithm::SlidingWindowLog => before.sum(recent) + u128::from(last.cost) <= policy.limit().into(),
            Algorithm::TokenBucket => before.refills_before(&last),
            _ => before.fits(policy, now_us, last.cost),
        }
    }

    /// The total cost of the charges for which `counts` is true.
    fn sum(&self, counts: impl Fn(&Charge) -> bool) -> u128 {
        self.charges.iter().filter(|charge| counts(charge)).map(|charge| u128::from(charge.cost)).sum()
    }

    /// The time until the bucket is full again, in units of 1 / limit microseconds, computed from all charges.
    ///
    /// Under another limit the debt is the same time, rounded up to a multiple of that limit's unit.
    fn debt(&self, policy: &Policy, now_us: u64) -> u128 {
        let (mut debt, mut parts, mut at_us) = (0, 1, 0);
        let mut wait_until = |debt: u128, now_us: u64, limit: u64| {
            let left = debt.saturating_sub(u128::from(now_us - at_us) * parts);
            let of_limit = u128::from(limit);
            let debt = if of_limit == parts { left } else { (left * of_limit).div_ceil(parts) };
            (parts, at_us) = (of_limit, now_us);
            debt
        };
        for charge in &self.charges {
            debt = wait_until(debt, charge.at_us, charge.policy.limit());
            let charged = debt + time(&charge.policy, charge.cost);
            // A counted denial empties the bucket at most.
            let empty = debt.max(time(&charge.policy, charge.policy.capacity()));
            debt = match charge.kind {
                Kind::Admitted => charged,
                Kind::Rejected => charged.min(empty),
                Kind::Credited => debt.saturating_sub(time(&charge.policy, charge.cost)),
            };
        }
        wait_until(debt, now_us, policy.limit())
    }

    /// Law 1 of a bucket: for every charge, the admissions since then refill within the time of a full bucket plus the
    /// time elapsed since the charge.
    fn refills_before(&self, last: &Charge) -> bool {
        let mut limits: Vec<_> = self.charges.iter().chain([last]).map(|charge| charge.policy.limit()).collect();
        limits.sort_unstable();
        limits.dedup();
        // A unit of time in which one unit of cost takes a whole number under every limit.
        let parts: u128 = limits.into_iter().map(u128::from).product();
        let time = |policy: &Policy, cost| time(policy, cost) * (parts / u128::from(policy.limit()));
        let burst = time(&last.policy, last.policy.capacity());
        let mut spent = time(&last.policy, last.cost);
        self.charges.iter().rev().all(|charge| {
            spent += time(&charge.policy, charge.cost);
            spent <= burst + u128::from(last.at_us - charge.at_us) * parts
        })
    }
}

/// The length of the window in microseconds; 0 for a calendar. The oracle judges no concurrency limits.
fn window_us(policy: &Policy) -> u64 {
    policy.window().map_or(0, micros)
}

/// Whole microseconds.
pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The time in which `cost` refills, in units of 1 / limit microseconds.
fn time(policy: &Policy, cost: u64) -> u128 {
    u128::from(cost) * u128::from(window_us(policy))
}
