//! Draws a plan from a seed: a subset of modes and faults, a load and a network.

use super::fault::{Fault, Kind};
use super::{Plan, Watch, mode::Mode};
use crate::random::Rng;

/// The longest fault, in milliseconds.
pub(crate) const LONGEST_FAULT: u64 = 1_200;
/// With slots, an outage has to leave time for a renewal within the time-to-live.
const LONGEST_WITH_SLOTS: u64 = 600;
/// Others renew the slots of a runtime that is not driven.
const LONGEST_IDLE: u64 = 4_500;
/// Time for a store to leave a former master, and to be judged after that.
const LONGEST_WITH_TWO_MASTERS: u64 = 2_800;
/// A fault whose end means nothing. The load ends while what it has left is still in its window.
const SHORT_FAULT: u64 = 400;
/// The shortest fault that has to meet a mode.
const SHORTEST_OF_A_PAIR: u64 = 300;
/// When faults start, in milliseconds.
const FIRST_FAULT: u64 = 500;
const FAULTS_WITHIN: u64 = 1_300;
/// For how long callers call, in milliseconds: long enough to be judged after the recovery from the last fault.
const SHORTEST_LOAD: u64 = 2_400;
const LOAD_AFTER_FAULTS: u64 = 1_800;
/// Each of these worlds has the next pair of a fault and a mode, so that 5 000 worlds have all pairs: the faults that
/// need a place of their own, and the others.
const RARE_EVERY: u64 = 20;
const OTHERS_EVERY: u64 = 4;

/// What all worlds have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Only {
    /// All callers use this mode.
    Mode(Mode),
    /// Each world has faults, all of this kind.
    Fault(Kind),
}

impl Only {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mode(mode) => mode.name(),
            Self::Fault(kind) => kind.name(),
        }
    }

    fn kind(self) -> Option<Kind> {
        match self {
            Self::Mode(_) => None,
            Self::Fault(kind) => Some(kind),
        }
    }
}

impl std::str::FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == text);
        text.parse().map(Self::Mode).or(kind.map(Self::Fault).ok_or(format!("there is no mode and no fault {text}")))
    }
}

impl Plan {
    /// The world of a seed.
    pub(crate) fn draw(seed: u64, only: Option<Only>) -> Self {
        let mut rng = Rng::of_part(seed, 1);
        let mut modes = match only {
            Some(Only::Mode(mode)) => vec![mode],
            _ => draw_modes(&mut rng),
        };
        let pair = if only.is_none() { pair_of(seed) } else { None };
        let rare = pair.map(|(kind, _)| kind).filter(|kind| is_rare(*kind));
        let kind = only.and_then(Only::kind).or(rare);
        if kind.is_some_and(Kind::needs_sentinels) {
            modes.retain(|mode| mode.second_policy().is_none());
            modes.extend(modes.is_empty().then_some(Mode::Log));
        }
        if let Some((kind, mode)) = pair {
            // The first one is never left out.
            modes.retain(|other| *other != mode && can_meet(kind, *other));
            modes.insert(0, mode);
        }
        let needs_cluster = modes.iter().any(|mode| mode.second_policy().is_some());
        let needs_cluster = needs_cluster || kind.is_some_and(Kind::needs_cluster);
        let needs_sentinels = kind.is_some_and(Kind::needs_sentinels);
        let servers = if needs_cluster || !needs_sentinels && rng.chance(30) { 3 } else { 1 };
        let sentinels = if servers == 1 && (needs_sentinels || rng.chance(25)) { 3 } else { 0 };
        let processes = draw(&mut rng, 1, 3);
        let delay = rng.one_of(&[0, 0, 1, 1, 2, 3]);
        let has_slots = modes.iter().any(|mode| mode.is_slots());
        let mut plan = Self {
            seed,
            servers,
            sentinels,
            processes,
            runtimes: rng.one_of(&[1, 1, 1, 2, 2, 3]),
            callers: draw(&mut rng, 2, 9).max(modes.len()),
            delay,
            jitter: rng.below(delay + 1),
            load: SHORTEST_LOAD,
            faults: vec![],
            watch: Watch::Nobody,
            modes,
        };
        if kind.is_some_and(Kind::needs_runtimes) {
            plan.runtimes = plan.runtimes.max(2);
        }
        let count = if has_slots { 1 } else { draw(&mut rng, u64::from(kind.is_some()), 3) };
        plan.faults = (0..count).map(|_| draw_fault(&plan, kind, has_slots, &mut rng)).collect();
        if let Some((kind, _)) = pair.filter(|(kind, _)| !plan.faults.iter().any(|fault| fault.kind == *kind)) {
            plan.faults.truncate(count.saturating_sub(1));
            plan.faults.push(draw_fault(&plan, Some(kind), has_slots, &mut rng));
        }
        if let Some((kind, _)) = pair {
            // A shorter fault may miss the calls of its mode, and so may those of a single caller.
            plan.callers = plan.callers.max(2 * plan.modes.len());
            let of_pair = plan.faults.iter_mut().filter(|fault| fault.kind == kind);
            of_pair.for_each(|fault| fault.lasts = fault.lasts.max(SHORTEST_OF_A_PAIR));
        }
        plan.faults.sort_by_key(|fault| fault.at);
        plan.load = SHORTEST_LOAD.max(plan.healed_at() + LOAD_AFTER_FAULTS);
        if rng.chance(20) {
            plan.watch = Watch::Panics;
        }
        // Further draws come last, so that those before them stay what they were.
        let (fails_a_runtime, outlasts) = (rng.chance(15), rng.chance(8));
        let is_free = kind.is_none() && pair.is_none();
        if is_free && plan.runtimes > 1 && fails_a_runtime {
            plan.fail_a_runtime(&mut rng);
        } else if is_free && !has_slots && !needs_cluster && outlasts {
            plan.outlast_the_load();
        }
        // Keys are hot where many callers share them.
        if rng.chance(12) {
            plan.modes.truncate(1);
            plan.callers *= 2;
        }
        let has_two_masters = rng.chance(30);
        if is_free && plan.sentinels > 0 && has_two_masters {
            plan.leave_two_masters(has_slots, &mut rng);
        }
        if is_free && only.is_none() && rng.chance(20) {
            plan.add_later_modes(&mut rng);
        }
        plan
    }

    /// A failover beside what has been drawn. Slots have one fault.
    fn leave_two_masters(&mut self, has_slots: bool, rng: &mut Rng) {
        let kind = rng.one_of(&Kind::OF_TWO_MASTERS);
        if has_slots || rng.chance(50) {
            self.faults.clear();
        }
        self.faults.push(draw_fault(self, Some(kind), has_slots, rng));
        self.faults.sort_by_key(|fault| fault.at);
        self.load = SHORTEST_LOAD.max(self.healed_at() + LOAD_AFTER_FAULTS);
    }

    /// Further modes beside those that have been drawn, or in their place.
    fn add_later_modes(&mut self, rng: &mut Rng) {
        if rng.chance(50) {
            self.modes.clear();
        }
        for _ in 0..draw(rng, 1, 2) {
            let mode = rng.one_of(Mode::LATER);
            if !self.modes.contains(&mode) {
                self.modes.push(mode);
            }
        }
        self.callers = self.callers.max(self.modes.len());
    }

    /// Nothing fails but a runtime: only then it is certain what it leaves behind.
    fn fail_a_runtime(&mut self, rng: &mut Rng) {
        let kind = rng.one_of(&[Kind::EndRuntime, Kind::IdleRuntime]);
        let longest = if kind == Kind::IdleRuntime { LONGEST_IDLE } else { SHORT_FAULT };
        let (at, lasts) = (FIRST_FAULT + rng.below(FAULTS_WITHIN), 20 + rng.below(longest - 20));
        self.faults = vec![Fault { kind, at, lasts, process: draw(rng, 0, self.processes as u64 - 1), server: 0 }];
        self.load = SHORTEST_LOAD.max(self.healed_at() + LOAD_AFTER_FAULTS);
    }

    /// The last outage ends after the last call.
    fn outlast_the_load(&mut self) {
        let last = self.faults.iter().max_by_key(|fault| fault.end());
        self.load = last.map_or(self.load, |fault| fault.at + fault.lasts / 2);
    }
}

fn draw(rng: &mut Rng, least: u64, most: u64) -> usize {
    usize::try_from(least + rng.below(most - least + 1)).unwrap_or(1)
}

/// Whether a world can have a fault beside a mode. A step forward ends all slots. Checks of two keys are made on
/// clusters, which have no sentinels.
pub(crate) fn can_meet(kind: Kind, mode: Mode) -> bool {
    let ends_slots = mode.is_slots() && kind.clock_step().is_some_and(|step| step > 0);
    let lacks_sentinels = mode.second_policy().is_some() && kind.needs_sentinels();
    !ends_slots && !lacks_sentinels
}

/// Whether a fault needs a place of its own.
fn is_rare(kind: Kind) -> bool {
    kind.needs_sentinels() || kind.needs_cluster() || kind.needs_runtimes()
}

/// A fault and a mode that it has to meet. Drawn by chance, some of these pairs would take tens of thousands of worlds.
fn pair_of(seed: u64) -> Option<(Kind, Mode)> {
    let (every, wants_rare, modes) = match seed {
        _ if seed.is_multiple_of(RARE_EVERY) => (RARE_EVERY, true, Mode::FIRST),
        _ if seed % OTHERS_EVERY == OTHERS_EVERY - 1 => (OTHERS_EVERY, false, Mode::FIRST),
        _ if seed % RARE_EVERY == RARE_EVERY / 2 => (RARE_EVERY, true, Mode::LATER),
        _ if seed % OTHERS_EVERY == 1 => (OTHERS_EVERY, false, Mode::LATER),
        _ => return None,
    };
    let modes = |kind| modes.iter().copied().filter(move |mode| can_meet(kind, *mode)).map(move |mode| (kind, mode));
    let kinds = Kind::ALL.into_iter().filter(|kind| is_rare(*kind) == wants_rare);
    let pairs: Vec<_> = kinds.flat_map(modes).collect();
    let number = usize::try_from(seed / every).unwrap_or(0) % pairs.len();
    Some(pairs[number])
}

/// One to three modes, of which the first is any with the same chance.
fn draw_modes(rng: &mut Rng) -> Vec<Mode> {
    let mut modes = vec![];
    for _ in 0..draw(rng, 1, 3) {
        let mode = rng.one_of(Mode::FIRST);
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

fn draw_fault(plan: &Plan, only: Option<Kind>, has_slots: bool, rng: &mut Rng) -> Fault {
    loop {
        let kind = only.unwrap_or_else(|| rng.one_of(Kind::DRAWN));
        let longest = match kind {
            Kind::IdleRuntime => LONGEST_IDLE,
            _ if kind.leaves_two_masters() => LONGEST_WITH_TWO_MASTERS,
            _ if has_slots => LONGEST_WITH_SLOTS,
            _ => LONGEST_FAULT,
        };
        let fault = Fault {
            kind,
            at: FIRST_FAULT + rng.below(FAULTS_WITHIN),
            lasts: 20 + rng.below(longest - 20),
            process: draw(rng, 0, plan.processes as u64 - 1),
            server: draw(rng, 0, plan.all_servers() as u64 - 1),
        };
        // A step ends all slots, or makes them last.
        let ends_slots = has_slots && kind.clock_step().is_some_and(|step| step > 0);
        if plan.has_place_for(&fault) && (only.is_some() || !ends_slots) {
            return fault;
        }
    }
}
