//! Policies with leases on Redis: several processes that spend one key, over a network, over restarts and stops.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{collections::BinaryHeap, env, fs, path::PathBuf, thread};

use tokio::{runtime, task::JoinSet};
use tollgate::{Limiter, Policy, RedisStore, decision::Source, policy::HoldSettings};

use crate::support::link::Link;
use crate::support::redis_server::{RedisServer, calls};
use crate::support::{asserts_times, connect, measured, print_line, time_us};

const WINDOW: Duration = Duration::from_secs(1);
const LIMIT: u64 = 20_000;
const KEY: &str = "hot";

fn policy() -> Policy {
    let holds = HoldSettings::new().with_ttl(Duration::from_secs(1));
    let policy = Policy::new("p", LIMIT, WINDOW).unwrap().with_resolution(WINDOW / 1_000);
    policy.with_holds(holds).with_lease(2_000)
}

fn limiter(url: &str) -> Limiter {
    Limiter::new(RedisStore::builder().deadline(Duration::from_millis(500)).open(url).unwrap())
}

/// What a load was admitted. Each check has the times before it, after it and of its decision. This machine's clock is
/// that of Redis.
#[derive(Debug, Default)]
struct Got {
    times_us: Vec<[u64; 3]>,
    from_blocks: usize,
    failed: usize,
}

impl Got {
    fn add(&mut self, other: Self) {
        self.times_us.extend(other.times_us);
        self.from_blocks += other.from_blocks;
        self.failed += other.failed;
    }
}

/// Checks with 16 tasks, at most about 60 000 times a second: three processes exceed the limit of the policy.
async fn load(limiter: Limiter, time: Duration) -> Got {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let limiter = limiter.clone();
        tasks.spawn(async move {
            let mut got = Got::default();
            while Instant::now() < end {
                for _ in 0..4 {
                    let before_us = now_us();
                    match limiter.check(KEY, &policy(), 1).await {
                        Ok(decision) if decision.is_allowed() => {
                            got.times_us.push([before_us, now_us(), time_us(&decision).unwrap()]);
                            got.from_blocks += usize::from(decision.source() == Source::Lease);
                        }
                        Ok(_) => {}
                        Err(_) => got.failed += 1,
                    }
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            got
        });
    }
    let mut all = Got::default();
    while let Some(got) = tasks.join_next().await {
        all.add(got.unwrap());
    }
    all
}

/// Asserts that no window has seen more than the limit. Returns the units in the fullest window.
fn judge(times_us: &[[u64; 3]]) -> usize {
    let most = fullest(times_us.iter().map(|&[before, after, _]| (before, after)).collect());
    let said = fullest(times_us.iter().map(|&[_, _, said]| (said, said)).collect());
    assert!(most.max(said) <= LIMIT as usize, "{most} of {LIMIT}, {said} by the decisions");
    most
}

/// The units in the fullest window of those that begin some time after the first unit.
fn fullest_after(times_us: &[[u64; 3]], time: Duration) -> usize {
    let first_us = times_us.iter().map(|times| times[0]).min().unwrap();
    let begin_us = first_us + u64::try_from(time.as_micros()).unwrap();
    let later = times_us.iter().filter(|times| times[0] >= begin_us);
    fullest(later.map(|&[before, after, _]| (before, after)).collect())
}

/// The units that were certainly spent in the fullest window.
fn fullest(mut times_us: Vec<(u64, u64)>) -> usize {
    times_us.sort_unstable();
    let window_us = u64::try_from(WINDOW.as_micros()).unwrap();
    // Windows from the last one to the first, with the ends of the checks that began in them.
    let (mut most, mut inside) = (0, BinaryHeap::new());
    for (start, after) in times_us.into_iter().rev() {
        inside.push(after);
        while inside.peek().is_some_and(|after| *after >= start + window_us) {
            inside.pop();
        }
        most = most.max(inside.len());
    }
    most
}

#[test]
fn units_whose_time_is_uncertain_are_not_counted_in_a_window() {
    let window_us = u64::try_from(WINDOW.as_micros()).unwrap();
    let certain = vec![(0, 0), (1, window_us - 1), (window_us - 1, window_us - 1)];
    assert_eq!(fullest(certain.clone()), 3);
    let uncertain = [certain, vec![(window_us - 1, window_us), (window_us - 1, 2 * window_us)]].concat();
    assert_eq!(fullest(uncertain), 3);
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// Runs the load of four processes, each with connections of its own.
fn four(url: &str, time: Duration) -> Got {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut loads = JoinSet::new();
        for _ in 0..4 {
            loads.spawn(load(limiter(url), time));
        }
        let mut all = Got::default();
        while let Some(got) = loads.join_next().await {
            all.add(got.unwrap());
        }
        all
    })
}

/// Runs the load of four processes on a server of its own. Returns the figures unless blocks were spent, and at least
/// 95 % of the limit also after the first blocks have ended.
fn spend(round_trip: Duration) -> Option<String> {
    let server = RedisServer::start();
    let url = if round_trip.is_zero() { server.url() } else { Link::to(server.port(), round_trip).url() };
    let got = four(&url, Duration::from_millis(3_500));
    let (most, from_blocks) = (judge(&got.times_us), got.from_blocks);
    assert_eq!(got.failed, 0, "round trip {round_trip:?}");
    let later = fullest_after(&got.times_us, WINDOW * 3 / 2);
    let figures = format!("leases round_trip={round_trip:?} most={most} later={later} from_blocks={from_blocks}");
    print_line(&figures);
    (from_blocks < LIMIT as usize || later < LIMIT as usize * 95 / 100).then_some(figures)
}

#[test]
fn law_1_four_processes_spend_one_key_from_blocks_and_never_more_than_the_limit() {
    for round_trip in [Duration::ZERO, Duration::from_millis(5)] {
        measured(|| spend(round_trip));
    }
}

#[test]
fn law_1_a_restart_of_redis_lets_no_more_through_than_the_limit() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = server.url();
    let loads = thread::spawn(move || four(&url, Duration::from_secs(4)));
    thread::sleep(Duration::from_millis(1_500));
    server.restart();
    let got = loads.join().unwrap();
    judge(&got.times_us);
    let later = fullest_after(&got.times_us, Duration::from_millis(2_500));
    print_line(&format!("leases restart later={later}"));
    assert!(later > 0, "the limiters have not recovered");
    assert!(!asserts_times() || later > LIMIT as usize / 2, "the limiters have recovered late: {later}");
}

#[test]
fn keys_that_are_checked_once_take_the_same_calls_as_without_a_lease() {
    let server = RedisServer::start();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut sent = Vec::new();
    for policy in [Policy::per_minute("plain", 100).unwrap(), policy()] {
        let before = calls(&server, "evalsha");
        runtime.block_on(async {
            let limiter = limiter(&server.url());
            for number in 0..500 {
                assert!(limiter.check(format!("k{number}"), &policy, 1).await.unwrap().is_allowed());
            }
            limiter.close().await;
        });
        sent.push(calls(&server, "evalsha") - before);
    }
    assert_eq!(sent[0], sent[1]);
}

/// The blocks of several hot keys that end together, as when a process ends.
#[test]
fn the_settlements_of_several_leases_share_calls() {
    const KEYS: usize = 64;
    let server = RedisServer::start();
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let limiter = Limiter::new(connect(&server.url()));
        let policy = Policy::per_hour("p", 1_000_000).unwrap().with_lease(1_000);
        let key = |number: usize| format!("hot-{number}");
        let mut admitted = [0; KEYS];
        // One key after the other, so that each is hot however busy the machine is.
        for (number, admitted) in admitted.iter_mut().enumerate() {
            let (start, mut is_leased) = (Instant::now(), false);
            while !is_leased {
                let checks: JoinSet<_> = (0..64).map(|_| limiter.check(key(number), &policy, 1)).collect();
                let decisions = checks.join_all().await;
                is_leased = decisions.iter().any(|decision| decision.as_ref().unwrap().source() == Source::Lease);
                *admitted += 64;
                assert!(start.elapsed() < Duration::from_secs(20), "no block of {}", key(number));
            }
        }
        let before = calls(&server, "evalsha");
        limiter.close().await;
        let settlements = calls(&server, "evalsha") - before;
        assert!(settlements <= 16, "{settlements} calls for the blocks of {KEYS} keys");
        for (number, admitted) in admitted.into_iter().enumerate() {
            let left = limiter.peek(key(number), &policy).await.unwrap().available();
            assert_eq!(left, Some(1_000_000 - admitted), "{}", key(number));
        }
    });
}

/// A process whose times are read from a file.
fn spawn(url: &str, output: &PathBuf) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "redis::leases::lease_process", "--ignored", "--nocapture"])
        .env("LEASES_URL", url)
        .env("LEASES_OUTPUT", output)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: the process that the test below stops.
#[test]
#[ignore = "started by the test below"]
fn lease_process() {
    let (url, output) = (env::var("LEASES_URL").unwrap(), env::var("LEASES_OUTPUT").unwrap());
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let got = runtime.block_on(load(limiter(&url), Duration::from_secs(7)));
    let times: Vec<String> = got.times_us.iter().map(|times| times.map(|time| time.to_string()).join(" ")).collect();
    fs::write(output, times.join("\n")).unwrap();
}

#[test]
fn law_1_a_process_that_is_stopped_spends_no_block_that_has_expired() {
    let server = RedisServer::start();
    let output = env::temp_dir().join(format!("tollgate-leases-{}-{}", std::process::id(), server.port()));
    let mut child = spawn(&server.url(), &output);
    let signal = |signal: &str| {
        let status = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(status.success());
    };
    let url = server.url();
    let loads = thread::spawn(move || four(&url, Duration::from_secs(7)));
    thread::sleep(Duration::from_millis(1_500));
    for _ in 0..2 {
        // For longer than a hold lives, and a window.
        signal("STOP");
        thread::sleep(Duration::from_millis(2_200));
        signal("CONT");
        thread::sleep(Duration::from_millis(200));
    }
    let mut times_us = loads.join().unwrap().times_us;
    assert!(child.wait().unwrap().success());
    let text = fs::read_to_string(&output).unwrap();
    fs::remove_file(&output).unwrap();
    let before = times_us.len();
    times_us.extend(text.lines().map(|line| {
        let times: Vec<u64> = line.split(' ').map(|time| time.parse().unwrap()).collect();
        <[u64; 3]>::try_from(times).unwrap()
    }));
    assert!(times_us.len() > before, "the other process was admitted too");
    judge(&times_us);
}
