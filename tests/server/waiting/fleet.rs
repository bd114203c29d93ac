//! Four processes that wait for the same key.

use std::process::{Child, Command, Stdio};
use std::{env, io::Read, thread, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tollgate::{Algorithm, Policy};

use crate::support::{link::Link, measured, redis_server::RedisServer, time_us};
use crate::{load::limiter, print_line};

const PROCESSES: usize = 4;
const WORKERS: usize = 8;
const LIMIT: u64 = 50;
/// Ten windows are counted, between the first and the last.
const WINDOWS: u64 = 12;

/// What a process reports: the times of its admissions by the store's clock, and its calls of Redis.
struct Report {
    admitted_us: Vec<u64>,
    calls: u64,
}

fn policy(kind: &str) -> Policy {
    let policy = Policy::per_second("upstream", LIMIT).unwrap();
    match kind {
        "log" => policy,
        _ => policy.with_algorithm(Algorithm::TokenBucket).with_burst(1),
    }
}

fn spawn(url: &str, kind: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "fleet_process", "--ignored", "--nocapture"])
        .env("WAITING_URL", url)
        .env("WAITING_POLICY", kind)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The entry point of a process: workers that wait for unit after unit.
pub(crate) fn main() {
    let (url, kind) = (env::var("WAITING_URL").unwrap(), env::var("WAITING_POLICY").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (admitted, calls) = runtime.block_on(async {
        let (limiter, calls) = limiter(&url).await;
        let before = calls.count();
        let end = Instant::now() + Duration::from_secs(WINDOWS);
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            let (limiter, policy) = (limiter.clone(), policy(&kind));
            workers.spawn(async move {
                let mut admitted = Vec::new();
                while Instant::now() < end {
                    let acquired = limiter.acquire("upstream", &policy, 1).within(Duration::from_secs(5));
                    if let Ok(Ok(decision)) = tokio::time::timeout_at(end, acquired).await
                        && decision.is_allowed()
                    {
                        admitted.push(time_us(&decision).unwrap());
                    }
                }
                admitted
            });
        }
        let admitted = workers.join_all().await.concat();
        (admitted, calls.count() - before)
    });
    let times: Vec<String> = admitted.iter().map(u64::to_string).collect();
    println!("REPORT {calls} {}", times.join(","));
}

fn read(mut child: Child) -> Report {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("REPORT ")).unwrap().1;
    let (calls, times) = line.split_once(' ').unwrap();
    let admitted_us = times.split(',').filter_map(|time| time.parse().ok()).collect();
    Report { admitted_us, calls: calls.parse().unwrap() }
}

/// Runs the fleet, and returns its rate as a part of the policy's, the least share as a part of an equal one, and the
/// calls for each admission.
fn run(kind: &str, round_trip: Duration) -> (f64, f64, f64) {
    let server = RedisServer::start();
    let url = if round_trip.is_zero() { server.url() } else { Link::to(server.port(), round_trip).url() };
    let children: Vec<Child> = (0..PROCESSES).map(|_| spawn(&url, kind)).collect();
    let reports: Vec<Report> = children.into_iter().map(read).collect();
    let mut all: Vec<u64> = reports.iter().flat_map(|report| report.admitted_us.clone()).collect();
    all.sort_unstable();
    // Law 1, by the times of the store.
    for pair in all.windows(LIMIT as usize + 1) {
        assert!(pair[LIMIT as usize] - pair[0] >= 1_000_000 || kind != "log", "over the limit");
    }
    // While all processes wait: the first and the last second are left out.
    let (from, to) = (all[0] + 1_000_000, all[0] + 1_000_000 * WINDOWS - 1);
    let counted = |times: &[u64]| times.iter().filter(|time| (from..to).contains(*time)).count() as f64;
    let total = counted(&all);
    let least = reports.iter().map(|report| counted(&report.admitted_us)).fold(f64::MAX, f64::min);
    let calls: u64 = reports.iter().map(|report| report.calls).sum();
    let rate = total / (LIMIT * (WINDOWS - 2)) as f64;
    let figures = (rate, least / (total / PROCESSES as f64), calls as f64 / all.len() as f64);
    print_line(&format!(
        "waiting fleet {kind} round_trip={round_trip:?} rate={:.3} least_share={:.2} calls_per_admission={:.2}",
        figures.0, figures.1, figures.2
    ));
    figures
}

/// The fleets run at the same time, because they wait most of the time: a fleet takes a twentieth of a core.
fn assert_fair(kind: &str) {
    thread::scope(|scope| {
        for round_trip in [0, 5].map(Duration::from_millis) {
            scope.spawn(move || {
                measured(|| {
                    let figures @ (rate, least_share, calls) = run(kind, round_trip);
                    let is_fair = rate >= 0.9 && least_share >= 0.6 && calls <= 4.0;
                    (!is_fair).then(|| format!("rate, least share, calls: {figures:?}"))
                });
            });
        }
    });
}

#[test]
fn four_processes_share_the_rate_of_a_bucket_of_one() {
    assert_fair("bucket");
}

#[test]
fn four_processes_share_the_rate_of_a_log() {
    assert_fair("log");
}
