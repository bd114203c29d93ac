//! Processes: a limiter and its runtimes, which the world drives in steps of a millisecond.

pub(crate) mod runtime;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::runtime::{Handle, Runtime};
use tollgate::{Limiter, MemoryStore, RedisStore};

use crate::{
    network,
    rare::Watcher,
    server::cluster::{FIRST_PORT, HOST},
    time::{ms, now},
};

pub(crate) struct Process {
    number: usize,
    /// The first one is there until the process ends.
    runtimes: Vec<OneRuntime>,
    pub(crate) limiter: SharedLimiter,
    fleet: Fleet,
}

/// The limiter of a process, which callers take from here for each call.
pub(crate) type SharedLimiter = Arc<Mutex<Limiter>>;

/// What each process knows about the world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) processes: usize,
    pub(crate) servers: usize,
    pub(crate) sentinels: usize,
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
    pub(crate) fn start(number: usize, fleet: Fleet, runtimes: usize) -> Self {
        network::set_current(number);
        let first = runtime::new();
        first.block_on(tokio::time::advance(ms(HEAD_START)));
        let others: Vec<Runtime> = (1..runtimes).map(|_| runtime::beside(&first)).collect();
        let limiter = fleet.limiter(&first);
        let all = [first].into_iter().chain(others);
        let runtimes = all.map(|runtime| OneRuntime { runtime, stands_until: 0, missed: 0 }).collect();
        Self { number, runtimes, limiter: Arc::new(Mutex::new(limiter)), fleet }
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

    /// A runtime stands still, or all of them.
    pub(crate) fn stand_still(&mut self, number: Option<usize>, until: u64) {
        for (index, runtime) in self.runtimes.iter_mut().enumerate() {
            if number.is_none_or(|number| number == index) {
                runtime.stands_until = until;
            }
        }
    }

    /// Runs all that is due within the next millisecond.
    pub(crate) fn drive(&mut self) {
        network::set_current(self.number);
        for OneRuntime { runtime, stands_until, missed } in &mut self.runtimes {
            match *stands_until > now() {
                true => *missed += 1,
                false => runtime::drive(runtime, std::mem::take(missed)),
            }
        }
    }

    /// Ends the last runtime with all of its tasks, if there are several.
    pub(crate) fn end_last_runtime(&mut self) -> bool {
        network::set_current(self.number);
        let last = if self.runtimes.len() > 1 { self.runtimes.pop() } else { None };
        last.map(|last| drop_runtime(last.runtime)).is_some()
    }

    /// Drops all handles of the limiter, and makes another one.
    pub(crate) fn replace_limiter(&self) {
        network::set_current(self.number);
        let new = self.fleet.limiter(&self.runtimes[0].runtime);
        let _entered = self.runtimes[0].runtime.enter();
        *self.limiter.lock().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Ends the process as if it were killed. Its connections have to be cut before.
    pub(crate) fn kill(self) {
        network::set_current(self.number);
        self.runtimes.into_iter().for_each(|runtime| drop_runtime(runtime.runtime));
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
                builder.connect_sentinel(sentinels, "redis://:password@main")
            }
            1 => builder.connect(&url(0)),
            _ => builder.connect_cluster((0..self.servers).map(url)),
        };
        let instances = u32::try_from(self.processes).expect("processes are few");
        let limiter = Limiter::new(store.expect("the addresses are valid")).quiet();
        limiter.with_observer(Watcher).with_local(MemoryStore::new(), instances).expect("there are instances")
    }
}
