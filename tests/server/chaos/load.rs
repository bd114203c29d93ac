//! The worker processes that generate the load. They end when [`Workers`] is dropped or the test process dies.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, io::Read};

use crate::WORKERS;
use crate::record::{Record, now_us};
use crate::report::{Keys, Results};

/// The request rate of each worker.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: u32,
    pub(crate) pause: Duration,
    /// Concurrent requests of one key, summed over all workers, every half second.
    pub(crate) burst: u32,
    pub(crate) interference: Interference,
}

/// What disturbs the workers while Redis is healthy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Interference {
    None,
    /// A handler holds the thread for 60 ms of every 100.
    Stalls,
    /// The process is stopped for 60 ms of every 100, as under a CPU quota.
    Pauses,
}

impl Load {
    /// A few thousand requests per second in total: Redis causes the waits, not a saturated machine.
    pub(crate) const STEADY: Self = Self::of(8, Duration::from_millis(6));
    /// Less load for a cluster, because all its servers share the machine.
    pub(crate) const LIGHT: Self = Self::of(4, Duration::from_millis(8));
    /// No pause, with few enough tasks that requests do not queue inside the worker; waits are asserted.
    pub(crate) const BRISK: Self = Self::of(16, Duration::ZERO);
    /// Saturates the machine.
    pub(crate) const FULL: Self = Self::of(64, Duration::ZERO);

    const fn of(tasks: u32, pause: Duration) -> Self {
        Self { tasks, pause, burst: 0, interference: Interference::None }
    }
}

pub(crate) struct Workers {
    workers: Vec<Child>,
    streams: Vec<TcpStream>,
    readers: Vec<JoinHandle<()>>,
    results: Arc<Mutex<Results>>,
}

impl Workers {
    /// Starts the processes, assigns them the failure policies in turn, and waits for the first decisions.
    pub(crate) fn start(target: &str, policies: &[&str], load: Load) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let report_address = listener.local_addr().unwrap().to_string();
        let workers: Vec<Child> = (0..WORKERS)
            .map(|seed| spawn(target, policies[seed % policies.len()], load, seed, &report_address))
            .collect();
        let results = Arc::new(Mutex::new(Results::new(WORKERS)));
        let mut this = Self { workers, streams: Vec::new(), readers: Vec::new(), results };
        for worker in 0..WORKERS {
            let (stream, _) = listener.accept().unwrap();
            let (reader, results) = (stream.try_clone().unwrap(), Arc::clone(&this.results));
            this.streams.push(stream);
            this.readers.push(thread::spawn(move || read(reader, worker, &results)));
        }
        this.until("no decision of the store before the fault", |results| results.recovery(0, Keys::ALL));
        this
    }

    pub(crate) fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Polls the results until `result` returns a value. Panics with `failure` after 20 s.
    pub(crate) fn until<T>(&self, failure: &str, mut result: impl FnMut(&Results) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(result) = result(&self.results()) {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{failure}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until all workers have reported everything before now; returns that time.
    pub(crate) fn wait_until_reported(&self) -> u64 {
        let now = now_us();
        self.until("a worker stopped reporting", |results| {
            results.seen.iter().all(|seen| seen.until_us >= now).then_some(now)
        })
    }

    /// Stops the workers and returns the results.
    pub(crate) fn stop(mut self) -> Results {
        for stream in &self.streams {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        for worker in &mut self.workers {
            assert!(worker.wait().unwrap().success(), "a worker failed, see above");
        }
        std::mem::replace(&mut *self.results(), Results::new(0))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Both calls fail without effect for a process that has already ended.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn spawn(target: &str, policy: &str, load: Load, seed: usize, report_address: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "worker_process", "--ignored", "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .env("CHAOS_TARGET", target)
        .env("CHAOS_POLICY", policy)
        .env("CHAOS_TASKS", load.tasks.to_string())
        .env("CHAOS_PAUSE_US", load.pause.as_micros().to_string())
        .env("CHAOS_BURST", (load.burst as usize / WORKERS).to_string())
        .env("CHAOS_INTERFERENCE", format!("{:?}", load.interference))
        .env("CHAOS_SEED", seed.to_string())
        .env("CHAOS_REPORT", report_address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn read(mut stream: TcpStream, worker: usize, results: &Mutex<Results>) {
    let mut bytes = [0; Record::SIZE * 2048];
    let mut filled = 0;
    while let Ok(more @ 1..) = stream.read(&mut bytes[filled..]) {
        filled += more;
        let whole = filled - filled % Record::SIZE;
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        for record in bytes[..whole].chunks_exact(Record::SIZE) {
            results.add(worker, Record::from_bytes(record.try_into().unwrap()));
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
}
