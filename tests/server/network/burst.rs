//! Bursts of thousands of concurrent checks over a network.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::{runtime, task::JoinSet};
use tollgate::{ErrorKind, FailurePolicy, Limiter, Policy, RedisStore};

use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{asserts_times, link::Link};
use crate::{ROUND_TRIPS, exclusively, print_line};

const LIMIT: u64 = 10;
const DEADLINE: Duration = Duration::from_millis(50);

/// The result of a burst under `fail_open`.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    passed: u32,
    unjudged: u32,
}

async fn burst(limiter: &Limiter, key: &str, checks: usize) -> Outcome {
    let policy = Policy::per_minute("p", LIMIT).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..checks {
        let check = limiter.check(key, &policy, 1);
        tasks.spawn(async move {
            let result = check.await;
            if let Err(error) = &result {
                print_line(&format!("{error}"));
            }
            (result.is_err(), FailurePolicy::Open.resolve(result).is_allowed())
        });
    }
    let mut outcome = Outcome::default();
    for (unjudged, passed) in tasks.join_all().await {
        outcome.passed += u32::from(passed);
        outcome.unjudged += u32::from(unjudged);
    }
    outcome
}

fn bursts(round_trips: &[Duration], times: usize) {
    for &round_trip in round_trips {
        let server = RedisServer::start();
        let link = Link::to(server.port(), round_trip);
        for threads in [1, 2] {
            let runtime = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
            for time in 0..times {
                // Simulates the start of a service: no connection, and no script in Redis.
                server.command("SCRIPT FLUSH");
                // Four thousand checks may take a busy machine longer than the default deadline.
                let deadline = if asserts_times() { DEADLINE } else { 20 * DEADLINE };
                let store = RedisStore::builder().deadline(deadline).open(&link.url());
                let limiter = Limiter::new(store.unwrap());
                // A dial with login and the check need more than two round trips within the deadline, so connect first.
                if round_trip * 4 > DEADLINE {
                    runtime.block_on(wait_until_connected(&limiter));
                }
                for kind in ["first", "second"] {
                    let key = format!("{kind}:{threads}:{time}");
                    let outcome = runtime.block_on(burst(&limiter, &key, 4_000));
                    let Outcome { passed, unjudged } = outcome;
                    print_line(&format!(
                        "burst round_trip={round_trip:?} threads={threads} {kind} passed={passed} unjudged={unjudged}"
                    ));
                    assert_eq!((passed.into(), unjudged), (LIMIT, 0), "{round_trip:?}, {threads} threads, {kind}");
                }
                assert!(!limiter.is_breaker_open());
            }
        }
    }
}

/// Waits until both connections of the pool are established.
pub(crate) async fn wait_until_connected(limiter: &Limiter) {
    let start = Instant::now();
    let policy = Policy::per_minute("p", 1).unwrap();
    while limiter.peek("warm", &policy).await.is_err() || start.elapsed() < Duration::from_millis(200) {
        assert!(start.elapsed() < Duration::from_secs(5), "no connection");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn law_14_every_check_of_a_burst_over_a_network_gets_a_verdict() {
    exclusively(|| bursts(&[ROUND_TRIPS[0], ROUND_TRIPS[2], ROUND_TRIPS[5]], 1));
}

#[test]
#[ignore = "takes long: tests/run --long"]
fn long_bursts_at_every_round_trip() {
    exclusively(|| bursts(&ROUND_TRIPS, 3));
}

/// Keeps Redis busy with scripts of about fifteen milliseconds, one after the other, until `ended`.
fn keep_busy(server: &RedisServer, ended: &AtomicBool) {
    let mut other = server.connection();
    while !ended.load(Ordering::Relaxed) {
        let () = tollgate::redis::cmd("EVAL").arg("for i = 1, 1000000 do end").arg(0).query(&mut other).unwrap();
    }
}

/// Another client of the same server: it sees how long Redis stays silent.
struct Witness {
    begun: Instant,
    last_answer_us: AtomicU64,
    longest_us: AtomicU64,
}

impl Witness {
    fn new() -> Self {
        Self { begun: Instant::now(), last_answer_us: AtomicU64::new(0), longest_us: AtomicU64::new(0) }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap()
    }

    /// Asks one question after the other until `ended`.
    fn ask(&self, url: &str, ended: &AtomicBool) {
        let mut connection = tollgate::redis::Client::open(url).unwrap().get_connection().unwrap();
        while !ended.load(Ordering::Relaxed) {
            let () = tollgate::redis::cmd("PING").exec(&mut connection).unwrap();
            self.longest_us.fetch_max(self.silence_us(), Ordering::Relaxed);
            self.last_answer_us.store(self.now_us(), Ordering::Relaxed);
        }
    }

    fn silence_us(&self) -> u64 {
        self.now_us().saturating_sub(self.last_answer_us.load(Ordering::Relaxed))
    }

    /// The longest time without an answer since the last call of this function.
    fn longest_silence(&self) -> Duration {
        Duration::from_micros(self.longest_us.swap(0, Ordering::Relaxed).max(self.silence_us()))
    }
}

/// Sends more concurrent checks than a busy Redis can process within the deadline; no check may pass without a verdict.
fn flood(round_trip: Duration, checks: u64, keys: u64) {
    let server = RedisServer::start();
    let link = Link::to(server.port(), round_trip);
    flood_over(&link.url(), &server, round_trip, checks, keys);
}

fn flood_over(url: &str, server: &RedisServer, round_trip: Duration, checks: u64, keys: u64) {
    let (ended, witness) = (AtomicBool::new(false), Witness::new());
    thread::scope(|scope| {
        let end = End(&ended);
        scope.spawn(|| keep_busy(server, &ended));
        scope.spawn(|| witness.ask(url, &ended));
        flood_busy(url, &witness, round_trip, checks, keys);
        drop(end);
    });
}

/// Sets the flag when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Repeats the flood until no check has passed three times. A flood does not count if another client saw that Redis was
/// silent for half a deadline: checks of a silent Redis are left to the failure policy. A busy machine takes the
/// processor from Redis.
fn flood_busy(url: &str, witness: &Witness, round_trip: Duration, checks: u64, keys: u64) {
    let limiter = Limiter::new(RedisStore::builder().deadline(FLOOD_DEADLINE).open(url).unwrap());
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(wait_until_connected(&limiter));
    let (mut met, mut time) = (0, 0);
    while met < 3 {
        time += 1;
        assert!(time <= 30, "Redis has been silent for {:?} in more than 27 of 30 floods", FLOOD_DEADLINE / 2);
        let policy = Policy::new(format!("flood{time}"), LIMIT, Duration::from_secs(60)).unwrap();
        witness.longest_silence();
        let mut tasks = JoinSet::new();
        for number in 0..checks {
            let check = limiter.check(number % keys, &policy, 1);
            runtime.block_on(async { tasks.spawn(check) });
        }
        let (mut judged, mut overloaded, mut passed) = (0, 0, 0);
        for result in runtime.block_on(tasks.join_all()) {
            judged += u32::from(result.is_ok());
            overloaded += u32::from(result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Overloaded));
            passed += u32::from(result.is_err() && FailurePolicy::Open.resolve(result).is_allowed());
        }
        let silence = witness.longest_silence();
        print_line(&format!(
            "flood round_trip={round_trip:?} checks={checks} keys={keys} judged={judged} overloaded={overloaded} \
             passed_unjudged={passed} silence={silence:?}"
        ));
        if passed > 0 && silence >= FLOOD_DEADLINE / 2 {
            runtime.block_on(wait_until_connected(&limiter));
            continue;
        }
        met += 1;
        assert_eq!(passed, 0, "{round_trip:?}, {keys} keys: {judged} judged, {overloaded} overloaded, {silence:?}");
        assert!(judged > 0 && !limiter.is_breaker_open(), "{round_trip:?}, {keys} keys: {judged} judged");
    }
}

fn floods(round_trips: &[Duration], checks: u64) {
    for &round_trip in round_trips {
        for keys in [1, checks] {
            exclusively(|| flood(round_trip, checks, keys));
        }
    }
}

/// A Redis that has been silent for half of this is left to the failure policy. A busy machine takes the processor from
/// Redis for tens of milliseconds.
const FLOOD_DEADLINE: Duration = Duration::from_millis(200);
/// More checks than Redis can process in time. A debug build needs fewer, because it is several times slower.
const FLOOD: u64 = if cfg!(debug_assertions) { 20_000 } else { 80_000 };

#[test]
fn law_14_a_flood_that_redis_cannot_answer_in_time_lifts_no_limit() {
    floods(&[ROUND_TRIPS[1], ROUND_TRIPS[5]], FLOOD);
}

/// With this many checks, the task of a connection runs after their deadlines: Redis has answered, and the process has
/// not read the answers yet.
#[test]
fn law_14_answers_that_are_read_after_the_deadline_lift_no_limit() {
    exclusively(|| flood(ROUND_TRIPS[1], 5 * FLOOD, 5 * FLOOD));
}

#[test]
fn law_14_answers_that_are_read_after_the_deadline_lift_no_limit_over_a_unix_socket() {
    let directory = Directory::new();
    let socket = directory.path("redis.sock");
    let server = RedisServer::start_with(&["--unixsocket", &socket]);
    let url = format!("unix://{socket}");
    exclusively(|| flood_over(&url, &server, Duration::ZERO, 5 * FLOOD, 5 * FLOOD));
}

#[test]
#[ignore = "takes long: tests/run --long"]
fn long_floods_at_every_round_trip() {
    floods(&ROUND_TRIPS, FLOOD);
}
