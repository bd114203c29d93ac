//! What happens in a run: the fleet, its load, and when which ways fail.

use std::time::Duration;

use super::network::{MS, Way};
use crate::support::random::Random;

/// How instances use the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Plain,
    Leases,
    Holds,
}

/// A kind of runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) mode: Mode,
    pub(super) instances: u32,
    pub(super) limit: u64,
    /// The costs of checks, each as likely as the others.
    pub(super) costs: &'static [u64],
    /// Whether all instances have the same load and lose the store together.
    pub(super) is_balanced: bool,
}

/// A fault of some ways.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) way: Way,
    /// Whether the calls in flight fail at its start.
    pub(super) resets: bool,
    /// The instances whose ways it concerns.
    pub(super) instances: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) window: Duration,
    pub(super) latency: Duration,
    pub(super) faults: Vec<Fault>,
    pub(super) lasts: Duration,
    /// For each instance, units a window by phases of equal length.
    pub(super) load: Vec<Vec<u64>>,
}

/// The phases of the load.
pub(super) const PHASES: u64 = 8;

impl Plan {
    pub(super) fn draw(kind: &Kind, seed: u64) -> Self {
        let mut random = Random(seed);
        let window = random.pick(&[1_000, 1_000, 2_000, 3_000]);
        let lasts = 4 * window + 4_000;
        let some = random.below(3);
        let faults = (0..=some).map(|number| draw_fault(kind, window, number, some, &mut random)).collect();
        let instances = usize::try_from(kind.instances).unwrap();
        let limit = kind.limit;
        let even = random.pick(&[2, 2, 3]) * limit / u64::from(kind.instances);
        let load = (0..instances).map(|_| {
            let uneven = |random: &mut Random| random.pick(&[0, 1, 2, 4, 8]) * limit / 2;
            (0..PHASES).map(|_| if kind.is_balanced { even } else { uneven(&mut random) }).collect()
        });
        let load = load.collect();
        Self { window: ms(window), latency: random.pick(&[0, 1, 1, 3, 8]) * MS, faults, lasts: ms(lasts), load }
    }
}

impl Plan {
    /// Whether a way fails between these times.
    pub(super) fn has_outage(&self, from: Duration, to: Duration) -> bool {
        self.faults.iter().any(|fault| fault.at < to && from < fault.at + fault.lasts)
    }
}

pub(super) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The first fault is in the first window or in the last ones, the others are anywhere.
fn draw_fault(kind: &Kind, window: u64, number: u64, some: u64, random: &mut Random) -> Fault {
    let at = match number {
        0 => random.below(window),
        _ if number == some => 3 * window + random.below(window),
        _ => random.below(4 * window),
    };
    let lasts = random.pick(&[60, 200, 700, 1_500, window, 2 * window]);
    let ways = [
        Way::Refused,
        Way::Refused,
        Way::Silent,
        Way::Held,
        Way::Deaf,
        Way::Mute,
        Way::Slow(22),
        Way::Slow(60),
        Way::Slow(300),
        Way::Flaky(30),
        Way::Flaky(90),
    ];
    // Ways that fail now and then do not fail together.
    let are_together = kind.is_balanced && kind.instances > 1;
    let way = random.pick(if are_together { &ways[..9] } else { &ways });
    let all = 0..usize::try_from(kind.instances).unwrap();
    let is_of_all = kind.is_balanced || random.one_in(2);
    let instances = all.clone().filter(|_| is_of_all || random.one_in(2)).collect();
    Fault { at: ms(at), lasts: ms(lasts), way, resets: random.one_in(2), instances }
}
