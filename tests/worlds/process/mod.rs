//! Processes: a limiter and its runtimes, which the world drives in steps of a millisecond.

pub(crate) mod runtime;
pub(crate) mod thread;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Runtime};
use tollgate::{Limiter, MemoryStore, RedisStore};

use crate::plan::{Plan, Watch};
use crate::server::cluster::{FIRST_PORT, HOST};
use crate::service::{Onlooker, Site};
use crate::time::{ms, now};
use crate::{keys::KEYS, network, place::Pause, rare::Watcher};

pub(crate) struct Process {
    number: usize,
    /// The first one is there until the process ends.
    runtimes: Vec<OneRuntime>,
    pub(crate) limiter: SharedLimiter,
    pub(crate) site: SharedSite,
    fleet: Fleet,
}

/// The limiter and the service of a process, which callers take from here for each call.
pub(crate) type SharedLimiter = Arc<Mutex<Limiter>>;
pub(crate) type SharedSite = Arc<Mutex<Site>>;

/// What each process knows about the world.
#[derive(Clone, Copy, Debug)]
struct Fleet {
    processes: usize,
    servers: usize,
    sentinels: usize,
    watch: Watch,
    /// Whether the store counts the instances.
    is_discovered: bool,
}

struct OneRuntime {
    runtime: Runtime,
    stands_until: u64,
    /// The milliseconds that have passed since it stands still.
    missed: u64,
}

/// How far the clock of a new process is moved: beyond the real time that passes while a world runs.
const HEAD_START: u64 = 3_600_000;

impl Process {
    /// Starts a process of a fleet.
    pub(crate) fn start(plan: &Plan, number: usize, life: u64, runtimes: usize) -> Self {
        network::set_current(number);
        let first = runtime::new();
        first.block_on(tokio::time::advance(ms(HEAD_START)));
        let mut all = vec![first];
        for before in 1..runtimes {
            all.push(runtime::beside(&all[before - 1]));
        }
        let Plan { processes, servers, sentinels, watch, .. } = *plan;
        let is_discovered = plan.counts_instances();
        let fleet = Fleet { processes, servers, sentinels, watch, is_discovered };
        let limiter = fleet.limiter(&all[0]);
        let site = Arc::new(Mutex::new(Site::new(plan, &limiter, life)));
        let runtimes = all.into_iter().map(|runtime| OneRuntime { runtime, stands_until: 0, missed: 0 }).collect();
        Self { number, runtimes, limiter: Arc::new(Mutex::new(limiter)), site, fleet }
    }

    /// The runtime with this number, or the first one.
    pub(crate) fn runtime(&self, number: usize) -> &Handle {
        self.runtimes.get(number).unwrap_or(&self.runtimes[0]).runtime.handle()
    }

    pub(crate) fn count_runtimes(&self) -> usize {
        self.runtimes.len()
    }

    /// The tasks of all runtimes.
    pub(crate) fn count_tasks(&self) -> usize {
        self.runtimes.iter().map(|runtime| runtime.runtime.metrics().num_alive_tasks()).sum()
    }

    pub(crate) fn limiter(&self) -> Limiter {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first key of those that are counted in the memory of this life of the process.
    pub(crate) fn first_key(&self) -> u64 {
        KEYS * self.site().life
    }

    /// A runtime stands still, or all of them.
    pub(crate) fn stand_still(&mut self, number: Option<usize>, until: u64) {
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            if number.is_none_or(|number| number == index) {
                runtime.stands_until = until;
            }
        }
    }

    /// For how long each runtime will stand still, in milliseconds.
    pub(crate) fn away(&self) -> impl Iterator<Item = u64> {
        self.runtimes.iter().map(|runtime| runtime.stands_until.saturating_sub(now()))
    }

    /// Runs all that is due within the next millisecond. Returns the pauses that begin.
    pub(crate) fn drive(&mut self) -> Vec<Pause> {
        network::set_current(self.number);
        let mut begun = vec![];
        for (index, OneRuntime { runtime, stands_until, missed }) in self.runtimes.iter_mut().enumerate() {
            if *stands_until > now() {
                *missed += 1;
                continue;
            }
            runtime::drive(runtime, std::mem::take(missed));
            let blocks = thread::take_blocks();
            if blocks > 0 {
                *stands_until = now() + blocks;
                begun.push(Pause { process: self.number, runtime: Some(index), from: now(), to: *stands_until });
            }
        }
        begun
    }

    /// Ends the last runtime with all of its tasks, if there are several.
    pub(crate) fn end_last_runtime(&mut self) -> bool {
        network::set_current(self.number);
        let last = if self.runtimes.len() > 1 { self.runtimes.pop() } else { None };
        last.map(|last| drop_runtime(last.runtime)).is_some()
    }

    /// Drops all handles of the limiter, and makes another one, also for the service.
    pub(crate) fn replace_limiter(&self) {
        network::set_current(self.number);
        let new = self.fleet.limiter(&self.runtimes[0].runtime);
        let _entered = self.runtimes[0].runtime.enter();
        self.site().serve(&new);
        *self.limiter.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Ends the process as if it were killed. Its connections have to be cut before.
    pub(crate) fn kill(self) {
        network::set_current(self.number);
        thread::kill(|| self.runtimes.into_iter().for_each(|runtime| drop_runtime(runtime.runtime)));
    }
}

/// A panic in a destructor of a task must not end the world.
fn drop_runtime(runtime: Runtime) {
    drop(catch_unwind(AssertUnwindSafe(|| runtime.shutdown_background())));
}

impl Fleet {
    /// A limiter whose background tasks are those of a runtime.
    fn limiter(self, runtime: &Runtime) -> Limiter {
        let _entered = runtime.enter();
        let host = |server: usize| format!("{HOST}:{}", usize::from(FIRST_PORT) + server);
        let url = |server: usize| format!("redis://:password@{}", host(server));
        let builder = RedisStore::builder();
        let store = match self.servers {
            1 if self.sentinels > 0 => {
                // Behind the master and its replica.
                let sentinels = (2..2 + self.sentinels).map(|server| format!("redis://{}", host(server)));
                builder.open_sentinel(sentinels, "redis://:password@main")
            }
            1 => builder.open(&url(0)),
            _ => builder.open_cluster((0..self.servers).map(url)),
        };
        let instances = u32::try_from(self.processes).expect("processes are few");
        let limiter = Limiter::new(store.expect("the addresses are valid")).without_notices();
        let limiter = limiter.with_observer(Watcher);
        let limiter = match Onlooker::of(self.watch) {
            Some(onlooker) => limiter.with_observer(onlooker),
            None => limiter,
        };
        limiter.with_local_fallback(MemoryStore::new(), Some(instances).filter(|_| !self.is_discovered))
    }
}
