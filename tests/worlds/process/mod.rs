//! Processes: a limiter and its runtimes, which the world drives in steps of a millisecond.

pub(crate) mod runtime;

use std::panic::{AssertUnwindSafe, catch_unwind};

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
    first: Runtime,
    second: Option<Runtime>,
    pub(crate) limiter: Limiter,
    pub(crate) paused_until: u64,
    /// The milliseconds that have passed since the process stood still.
    missed: u64,
}

/// How far the clock of a new process is moved: beyond the real time that passes while a world runs.
const HEAD_START: u64 = 3_600_000;

impl Process {
    /// Starts a process of a fleet.
    pub(crate) fn start(number: usize, processes: usize, servers: usize, has_second_runtime: bool) -> Self {
        network::set_current(number);
        let first = runtime::new();
        first.block_on(tokio::time::advance(ms(HEAD_START)));
        let second = has_second_runtime.then(|| runtime::beside(&first));
        let limiter = {
            let _entered = first.enter();
            limiter(processes, servers)
        };
        Self { number, first, second, limiter, paused_until: 0, missed: 0 }
    }

    /// The runtime of a caller.
    pub(crate) fn runtime(&self, caller: usize) -> &Handle {
        match &self.second {
            Some(second) if caller % 2 == 1 => second.handle(),
            _ => self.first.handle(),
        }
    }

    /// Runs all that is due within the next millisecond.
    pub(crate) fn drive(&mut self) {
        if self.paused_until > now() {
            self.missed += 1;
            return;
        }
        network::set_current(self.number);
        let missed = std::mem::take(&mut self.missed);
        for runtime in [Some(&self.first), self.second.as_ref()].into_iter().flatten() {
            runtime::drive(runtime, missed);
        }
    }

    /// Ends the second runtime, with all of its tasks.
    pub(crate) fn end_second_runtime(&mut self) -> bool {
        network::set_current(self.number);
        self.second.take().map(drop_runtime).is_some()
    }

    /// Ends the process as if it were killed. Its connections have to be cut before.
    pub(crate) fn kill(self) {
        network::set_current(self.number);
        drop_runtime(self.first);
        if let Some(second) = self.second {
            drop_runtime(second);
        }
    }
}

/// A panic in a destructor of a task must not end the world.
fn drop_runtime(runtime: Runtime) {
    drop(catch_unwind(AssertUnwindSafe(|| runtime.shutdown_background())));
}

fn limiter(processes: usize, servers: usize) -> Limiter {
    let url = |server: usize| format!("redis://{HOST}:{}", usize::from(FIRST_PORT) + server);
    let builder = RedisStore::builder();
    let store = match servers {
        1 => builder.connect(&url(0)),
        _ => builder.connect_cluster((0..servers).map(url)),
    };
    let instances = u32::try_from(processes).expect("processes are few");
    let limiter = Limiter::new(store.expect("the addresses are valid")).quiet();
    limiter.with_observer(Watcher).with_local(MemoryStore::new(), instances).expect("there are instances")
}
