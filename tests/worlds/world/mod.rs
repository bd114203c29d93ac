//! A world: servers, a network and processes, in which a plan takes its course.

mod ending;
mod faults;
mod masters;
mod probes;
mod standings;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::BTreeMap, sync::Arc};

use tokio::task::JoinHandle;

use crate::changes::{self, Change};
use crate::history::{self, Call};
use crate::keys::{self, LONE};
use crate::network::{self, Network};
use crate::place::{Pause, Place};
use crate::plan::{Plan, fault::Fault, features::clock_of, mode::Mode};
use crate::process::{Process, runtime};
use crate::server::done::{self, Done};
use crate::server::{cluster::Slots, database::Database};
use crate::time::{self, START_US, now};
use crate::{callers::Caller, random::Rng, rare};

pub(crate) use self::{
    ending::Ending,
    probes::{Probes, Wait},
    standings::{LONGEST, Look, Standing},
};

pub(crate) struct World {
    plan: Plan,
    processes: Vec<Process>,
    /// How many processes have been started.
    lives: u64,
    rng: Rng,
    /// What replicas have.
    snapshots: BTreeMap<usize, Database>,
    pauses: Vec<Pause>,
    blocks: Vec<Pause>,
    /// By when processes that have a new limiter have dialled, if they run.
    dialled_by: BTreeMap<usize, u64>,
    timeline: Vec<(u64, String)>,
    callers: Vec<JoinHandle<()>>,
    of_crate: tollgate::world::World,
}

/// What a world was like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) calls: Vec<Call>,
    /// Of counts, by hand.
    pub(crate) changes: Vec<Change>,
    /// What servers have done for keys.
    pub(crate) done: Done,
    pub(crate) ending: Ending,
    pub(crate) probes: Probes,
    pub(crate) pauses: Vec<Pause>,
    /// When tasks kept their threads. These are pauses, too.
    pub(crate) blocks: Vec<Pause>,
    /// The faults that took place.
    pub(crate) faults: Vec<Fault>,
    pub(crate) timeline: Vec<(u64, String)>,
    /// When a former master last ran a script for each process.
    pub(crate) served_by_former: BTreeMap<usize, u64>,
    /// The answers of all servers by the first word.
    pub(crate) answers: BTreeMap<String, u64>,
    /// The rare paths that were taken.
    pub(crate) paths: BTreeMap<&'static str, u64>,
    pub(crate) dials: u64,
    pub(crate) commands: u64,
    /// A hash of all commands and their times.
    pub(crate) trace: u64,
    /// A panic that has left the crate.
    pub(crate) panic: Option<String>,
}

/// How long a replica lags behind, in milliseconds.
pub(crate) const LAG: u64 = 40;
/// Beyond all that a caller may do in its last call, in milliseconds.
const LONGEST_CALL: u64 = 20_000;
/// How often a key moves, in milliseconds.
const MOVE_EVERY: u64 = 15;

/// Runs the world of a plan on this thread.
pub(crate) fn run(plan: &Plan) -> Report {
    let result = catch_unwind(AssertUnwindSafe(|| World::new(plan).run()));
    let calls = history::take();
    network::set(None);
    match result {
        Ok(report) => Report { calls: if report.calls.is_empty() { calls } else { report.calls }, ..report },
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(ToString::to_string));
            Report { calls, panic: Some(text.unwrap_or_default()), ..Report::default() }
        }
    }
}

impl World {
    fn new(plan: &Plan) -> Self {
        runtime::align_task_numbers();
        time::set(0);
        history::begin(plan);
        changes::take();
        done::take();
        keys::forget_told();
        rare::take();
        let of_crate = tollgate::world::World::enter(START_US, plan.seed).with_dial(network::dial);
        let mut world = Self {
            plan: plan.clone(),
            processes: vec![],
            lives: 0,
            rng: Rng::of_part(plan.seed, 2),
            snapshots: BTreeMap::new(),
            pauses: vec![],
            blocks: vec![],
            dialled_by: BTreeMap::new(),
            timeline: vec![],
            callers: vec![],
            of_crate,
        };
        let links = vec![vec![world.link(); plan.all_servers()]; plan.processes];
        let slots = plan.is_cluster().then(|| Slots::of(plan.servers));
        let mut network = Network::new(links, plan.all_servers(), slots, Rng::of_part(plan.seed, 3));
        if plan.sentinels > 0 {
            network.set_master(0, usize::MAX);
        }
        network::set(Some(network));
        for number in 0..plan.processes {
            let process = world.start_process(number, plan.runtimes);
            world.processes.push(process);
        }
        world
    }

    fn start_process(&mut self, number: usize, runtimes: usize) -> Process {
        self.lives += 1;
        Process::start(&self.plan, number, self.lives, runtimes)
    }

    fn run(mut self) -> Report {
        (0..self.plan.processes).for_each(|number| self.spawn_callers(number));
        let mut to_come = self.plan.faults.clone();
        to_come.sort_by_key(|fault| fault.at);
        let (mut present, mut met): (Vec<Fault>, Vec<Fault>) = (vec![], vec![]);
        let end = self.plan.load.max(self.plan.healed_at());
        while now() < end
            || !present.is_empty()
            || now() < end + LONGEST_CALL && !self.callers.iter().all(JoinHandle::is_finished)
        {
            for fault in to_come.iter().filter(|fault| fault.at == now() + LAG) {
                self.take_snapshot(fault);
            }
            while let Some(fault) = to_come.first().copied().filter(|fault| fault.at <= now()) {
                to_come.remove(0);
                if self.begin(&fault) {
                    self.say(format!("{fault} begins"));
                    met.push(fault);
                    present.push(fault);
                }
            }
            for fault in present.extract_if(.., |fault| fault.end() <= now()).collect::<Vec<_>>() {
                self.heal(&fault);
                self.say(format!("{fault} ends"));
            }
            present.iter().for_each(|fault| self.elect(fault));
            if now().is_multiple_of(MOVE_EVERY) {
                self.move_a_key();
            }
            self.tick();
        }
        let unfinished: Vec<Mode> = self.unfinished().collect();
        let mut ending = self.observe_ending(&met);
        ending.silent.extend(unfinished.into_iter().map(|mode| (mode, "a caller waits for ever".to_owned())));
        ending.tasks = self.be_quiet();
        let probes = self.probe();
        self.report(ending, probes, met)
    }

    /// The modes of callers that have not finished.
    fn unfinished(&self) -> impl Iterator<Item = Mode> {
        let waiting = self.callers.iter().enumerate().filter(|(_, caller)| !caller.is_finished());
        waiting.map(|(number, _)| self.plan.modes[number % self.plan.callers % self.plan.modes.len()])
    }

    fn report(self, ending: Ending, probes: Probes, faults: Vec<Fault>) -> Report {
        let (calls, changes) = (history::take(), changes::take());
        let (mut answers, mut trace, mut dials, mut commands) = (BTreeMap::new(), 0, 0, 0);
        let mut served_by_former = BTreeMap::new();
        network::with(|network| {
            for (word, count) in network.servers.iter().flat_map(|server| &server.answers) {
                *answers.entry(word.clone()).or_default() += count;
            }
            (trace, dials, commands) = (network.trace, network.dials, network.commands);
            served_by_former = std::mem::take(&mut network.served_by_former);
        });
        let Self { processes, pauses, blocks, timeline, .. } = self;
        processes.into_iter().for_each(Process::kill);
        // What ended with the processes is no part of the history.
        history::take();
        let (paths, done) = (rare::take(), done::take());
        let panic = None;
        Report {
            calls,
            changes,
            done,
            ending,
            probes,
            pauses,
            blocks,
            faults,
            timeline,
            served_by_former,
            answers,
            paths,
            dials,
            commands,
            trace,
            panic,
        }
    }

    /// One millisecond passes for all.
    fn tick(&mut self) {
        time::set(now() + 1);
        let count = self.processes.len();
        let first = usize::try_from(self.rng.below(count as u64)).unwrap_or(0);
        for number in (first..count).chain(0..first) {
            self.of_crate.set_time_us(clock_of(number, &self.plan.modes, now()));
            let blocks = self.processes[number].drive();
            self.pauses.extend(blocks.iter().copied());
            self.blocks.extend(blocks);
        }
        network::with(Network::step);
    }

    fn spawn_callers(&mut self, number: usize) {
        for caller in 0..self.plan.callers {
            let process = &self.processes[number];
            let (limiter, site) = (Arc::clone(&process.limiter), Arc::clone(&process.site));
            let mode = self.plan.modes[caller % self.plan.modes.len()];
            // Callers of one mode are on all runtimes.
            let runtime = caller / self.plan.modes.len() % process.count_runtimes();
            let (place, rng) = (Place { process: number, runtime }, Rng::new(self.rng.next()));
            let (key, until) = (LONE + self.callers.len() as u64, self.plan.load);
            let caller = Caller { limiter, site, mode, place, key, rng, until };
            self.callers.push(process.runtime(runtime).spawn(caller.run()));
        }
    }

    fn say(&mut self, text: String) {
        self.timeline.push((now(), text));
    }
}
