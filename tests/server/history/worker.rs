//! A worker process: sends checks of random costs and records the decisions.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs, time::Duration};

use tokio::task::JoinSet;
use tollgate::{Limiter, Policy, RedisStore};

/// One decided check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) time_us: u64,
    pub(crate) cost: u64,
    /// `None`: allowed.
    pub(crate) retry_after_us: Option<u64>,
}

/// Few keys and short windows, so that limits are always contended and windows end many times.
pub(crate) const KEYS: u64 = 25;
pub(crate) const LIMIT: u64 = 40;
pub(crate) const WINDOW: Duration = Duration::from_millis(20);
const MAX_COST: u64 = 10;
const ALLOWED: u64 = u64::MAX;

/// Runs the processes and collects their histories.
pub(crate) fn run_all(url: &str, processes: u64, requests: u64, in_flight: u64) -> Vec<Entry> {
    // The port makes the directory unique among concurrent tests.
    let port = url.rsplit(':').next().unwrap();
    let directory = env::temp_dir().join(format!("tollgate-history-{}-{port}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = |process: u64| directory.join(process.to_string());
    let children: Vec<Child> =
        (0..processes).map(|process| spawn(url, [requests, in_flight, process], &path(process))).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let entries = (0..processes).flat_map(|process| read(&path(process))).collect();
    fs::remove_dir_all(directory).unwrap();
    entries
}

fn spawn(url: &str, [requests, in_flight, seed]: [u64; 3], output: &Path) -> Child {
    let (requests, in_flight, seed) = (requests.to_string(), in_flight.to_string(), seed.to_string());
    start(
        "worker_process",
        &[
            ("HISTORY_URL", url),
            ("HISTORY_REQUESTS", &requests),
            ("HISTORY_IN_FLIGHT", &in_flight),
            ("HISTORY_SEED", &seed),
            ("HISTORY_OUTPUT", output.to_str().unwrap()),
        ],
    )
}

/// Starts a test of this binary as a process of its own.
pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The child process started by [`spawn`].
pub(crate) fn main() {
    let variable = |name: &str| env::var(name).unwrap();
    let number = |name: &str| variable(name).parse::<u64>().unwrap();
    let load = ["HISTORY_REQUESTS", "HISTORY_IN_FLIGHT", "HISTORY_SEED"].map(number);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entries = runtime.block_on(run(variable("HISTORY_URL"), load));
    let numbers = entries.iter().flat_map(|entry| {
        [entry.key, entry.time_us, entry.cost, entry.retry_after_us.unwrap_or(ALLOWED)].map(u64::to_le_bytes)
    });
    fs::write(PathBuf::from(variable("HISTORY_OUTPUT")), numbers.flatten().collect::<Vec<u8>>()).unwrap();
}

fn read(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).unwrap();
    let entry = |chunk: &[u8]| {
        let number = |index: usize| u64::from_le_bytes(chunk[index * 8..][..8].try_into().unwrap());
        let retry_after_us = (number(3) != ALLOWED).then_some(number(3));
        Entry { key: number(0), time_us: number(1), cost: number(2), retry_after_us }
    };
    bytes.chunks_exact(32).map(entry).collect()
}

async fn run(url: String, [requests, in_flight, seed]: [u64; 3]) -> Vec<Entry> {
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().deadline(Duration::from_secs(30)).open(&url).unwrap();
    let limiter = Limiter::new(store);
    let policy = Policy::new("p", LIMIT, WINDOW).unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..in_flight {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tasks.spawn(async move {
            let mut random = seed * in_flight + task + 1;
            let mut entries = Vec::new();
            for _ in 0..requests.div_ceil(in_flight) {
                let key = next(&mut random) % KEYS;
                let cost = 1 + next(&mut random) % MAX_COST;
                let decision = limiter.check(key, &policy, cost).await.unwrap();
                let retry_after_us = decision.retry_after().map(|wait| u64::try_from(wait.as_micros()).unwrap());
                assert_eq!(decision.is_allowed(), retry_after_us.is_none());
                entries.push(Entry { key, time_us: crate::support::time_us(&decision).unwrap(), cost, retry_after_us });
            }
            entries
        });
    }
    tasks.join_all().await.concat()
}

/// xorshift64*.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}
