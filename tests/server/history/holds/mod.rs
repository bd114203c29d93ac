//! Law 1 with holds, from outside: four processes hold, settle and drop on one Redis, while processes are killed and
//! Redis is restarted. The records that each process wrote before it died are judged.

mod judge;
mod ledger;
mod record;
mod worker;

use std::time::{Duration, Instant};
use std::{fs, process::Child, thread};

use tollgate::Limiter;

use self::record::Record;
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{connect, is_thorough, print_line};

/// Every reply follows a write to the disk, so that a restart loses nothing that a process has seen.
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const PROCESSES: usize = 4;
/// Kills, and a restart at every fifth fault, spread over the run.
const FAULTS: usize = 20;

#[test]
fn law_1_holds_of_four_processes_with_kills_and_restarts_never_pass_the_limit_and_all_units_are_accounted_for() {
    let operations = if is_thorough() { 1_000_000 } else { 100_000 };
    let mut server = RedisServer::start_with(DURABLE);
    let directory = Directory::new();
    let started = Instant::now();
    let mut workers: Vec<Child> = Vec::new();
    let (mut kills, mut restarts) = (0, 0);
    let spawn = |server: &RedisServer, number: usize| {
        worker::spawn(&server.url(), number, &directory.path(&number.to_string()))
    };
    workers.extend((0..PROCESSES).map(|number| spawn(&server, number)));
    let written = |processes: usize| -> usize {
        let length = |number: usize| fs::metadata(directory.path(&number.to_string())).map_or(0, |file| file.len());
        (0..processes).map(|number| length(number) as usize / record::BYTES).sum()
    };
    // An operation has two records: what was asked, and the answer.
    for fault in 1..=FAULTS {
        while written(PROCESSES + kills) < 2 * operations * fault / FAULTS {
            thread::sleep(Duration::from_millis(50));
            assert!(started.elapsed() < Duration::from_secs(600), "the processes stand still");
        }
        if fault % 5 == 0 {
            server.restart();
            restarts += 1;
        } else {
            let worker = &mut workers[kills % PROCESSES];
            worker.kill().unwrap();
            worker.wait().unwrap();
            *worker = spawn(&server, PROCESSES + kills);
            kills += 1;
        }
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let took = started.elapsed();
    // The holds of killed processes end with their time-to-live.
    thread::sleep(worker::TTL + Duration::from_millis(100));

    let records: Vec<Record> =
        (0..PROCESSES + kills).flat_map(|number| record::read(&directory.path(&number.to_string()))).collect();
    let lives = record::lives(&records);
    let found = judge::judge(&lives);
    let accounts = ledger::accounts(&lives);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = Limiter::new(connect(&server.url()));
    let wrong: Vec<String> = accounts
        .iter()
        .enumerate()
        .filter_map(|(key, account)| {
            let peek = runtime.block_on(limiter.peek(key as u64, &worker::ledger())).unwrap();
            let spent = tollgate::Policy::MAX_LIMIT - peek.available().unwrap();
            (!account.contains(&spent)).then(|| format!("key {key}: {spent} units spent, expected {account:?}"))
        })
        .collect();
    let certain: u64 = accounts.iter().map(|account| account.start()).sum();
    let uncertain: u64 = accounts.iter().map(|account| account.end() - account.start()).sum();
    print_line(&format!(
        "history holds operations={} took={took:.1?} kills={kills} restarts={restarts} {found:?} units={certain} \
         uncertain={uncertain}",
        records.len() / 2
    ));
    assert_eq!(wrong, [""; 0]);
    assert_eq!(found.over, 0, "{found:?}");
    // How many of all depends on the speed of the machine: more are denied if the same number takes less time.
    let is_contended = found.denied > 1_000 && found.asked - found.denied > 1_000;
    assert!(is_contended && found.underestimates > 1_000, "{found:?}");
    // Those of the faults, which are as many in a short history.
    assert!(uncertain < certain, "{uncertain} of {certain} units are uncertain");
}

/// Not a test: the entry point of the worker processes.
#[test]
#[ignore = "started by the test above"]
fn holds_worker_process() {
    worker::main();
}
