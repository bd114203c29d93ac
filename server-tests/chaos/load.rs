//! The processes that make the load. They end with this, and also when the test's process dies.

use std::{
    env,
    io::Read,
    net::{Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    record::{Record, now_us},
    report::{Keys, Tally},
};

pub(crate) const WORKERS: usize = 4;

/// How hard each worker asks.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) tasks: u32,
    pub(crate) pause: Duration,
    /// Requests of one client that come at once, in all workers together, every half a second.
    pub(crate) burst: u32,
    pub(crate) trouble: Trouble,
}

/// What happens to the processes while Redis is well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trouble {
    None,
    /// A handler holds the thread for 60 ms of every 100.
    Stalls,
    /// The process is stopped for 60 ms of every 100, as under a CPU quota.
    Pauses,
}

impl Load {
    /// Some thousand requests a second in all, so that waits are Redis' doing and not the machine's.
    pub(crate) const STEADY: Self = Self::of(8, Duration::from_millis(6));
    /// Less of it, for a cluster: its servers run on the same machine.
    pub(crate) const LIGHT: Self = Self::of(4, Duration::from_millis(8));
    /// Without a pause, and not so much that requests wait for each other within the worker: waits are judged.
    pub(crate) const BRISK: Self = Self::of(16, Duration::ZERO);
    /// As much as the machine can do.
    pub(crate) const FULL: Self = Self::of(64, Duration::ZERO);

    const fn of(tasks: u32, pause: Duration) -> Self {
        Self { tasks, pause, burst: 0, trouble: Trouble::None }
    }
}

pub(crate) struct Crew {
    workers: Vec<Child>,
    streams: Vec<TcpStream>,
    readers: Vec<JoinHandle<()>>,
    tally: Arc<Mutex<Tally>>,
}

impl Crew {
    /// Starts the processes. They have these failure policies in turn.
    pub(crate) fn start(place: &str, policies: &[&str], load: Load) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let report = listener.local_addr().unwrap().to_string();
        let workers: Vec<Child> =
            (0..WORKERS).map(|seed| spawn(place, policies[seed % policies.len()], load, seed, &report)).collect();
        let tally = Arc::new(Mutex::new(Tally::new(WORKERS)));
        let mut this = Self { workers, streams: Vec::new(), readers: Vec::new(), tally };
        for worker in 0..WORKERS {
            let (stream, _) = listener.accept().unwrap();
            let (reader, tally) = (stream.try_clone().unwrap(), Arc::clone(&this.tally));
            this.streams.push(stream);
            this.readers.push(thread::spawn(move || read(reader, worker, &tally)));
        }
        this.until("no decision of the store to begin with", |tally| tally.recovery(0, Keys::ALL));
        this
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is a result; what other processes do takes real time.
    pub(crate) fn until<T>(&self, otherwise: &str, mut result: impl FnMut(&Tally) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(result) = result(&self.tally()) {
                return result;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{otherwise}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until all workers have told what was before now.
    pub(crate) fn caught_up(&self) -> u64 {
        let now = now_us();
        self.until("a worker went silent", |tally| tally.seen.iter().all(|seen| seen.until_us >= now).then_some(now))
    }

    /// Ends the workers and returns what they told.
    pub(crate) fn stop(mut self) -> Tally {
        for stream in &self.streams {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        for worker in &mut self.workers {
            assert!(worker.wait().unwrap().success(), "a worker failed, see above");
        }
        std::mem::replace(&mut *self.tally(), Tally::new(0))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // Harmless for one that has ended and been waited for.
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn spawn(place: &str, policy: &str, load: Load, seed: usize, report: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "worker_process", "--ignored", "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .env("CHAOS_PLACE", place)
        .env("CHAOS_POLICY", policy)
        .env("CHAOS_TASKS", load.tasks.to_string())
        .env("CHAOS_PAUSE_US", load.pause.as_micros().to_string())
        .env("CHAOS_BURST", (load.burst as usize / WORKERS).to_string())
        .env("CHAOS_TROUBLE", format!("{:?}", load.trouble))
        .env("CHAOS_SEED", seed.to_string())
        .env("CHAOS_REPORT", report)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn read(mut stream: TcpStream, worker: usize, tally: &Mutex<Tally>) {
    let mut bytes = [0; Record::SIZE * 2048];
    let mut filled = 0;
    while let Ok(more @ 1..) = stream.read(&mut bytes[filled..]) {
        filled += more;
        let whole = filled - filled % Record::SIZE;
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        for record in bytes[..whole].chunks_exact(Record::SIZE) {
            tally.add(worker, Record::from_bytes(record.try_into().unwrap()));
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
}
