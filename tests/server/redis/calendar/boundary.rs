//! Processes whose clocks differ, across the boundary of a calendar window.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs::File, io::Read};

use tollgate::{Check, redis};

use super::{super::holds::check, anchored};
use crate::redis::stepped_clock::compile_clock;
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{connect, print_line};

/// A busy machine spends it before the boundary, too.
const LIMIT: u64 = 50;
const LOAD: Duration = Duration::from_millis(2_400);
/// The boundary is this long after the start, so that both windows are spent.
const BEFORE_BOUNDARY: Duration = Duration::from_millis(1_200);

/// The server's time in microseconds.
fn server_us(server: &RedisServer) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut server.connection()).unwrap();
    seconds * 1_000_000 + micros
}

/// A process whose clock is ahead by these seconds.
fn spawn(directory: &Directory, library: &str, ahead: i64, url: &str, start_us: u64) -> Child {
    let name = format!("ahead{ahead}");
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "redis::calendar::boundary::a_process", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("STEPPED_CLOCK", directory.write(&name, (ahead * 1_000_000).to_le_bytes()))
        .env("CALENDAR_LOAD", format!("{url} {start_us} {}", directory.path(&format!("{name}.out"))))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: a process of the test below. Writes the time of each verdict, and whether it was allowed.
#[tokio::test]
#[ignore = "started by the test below"]
async fn a_process() {
    let load = env::var("CALENDAR_LOAD").unwrap();
    let [url, start_us, output] = load.split(' ').collect::<Vec<_>>()[..] else { panic!("{load}") };
    let policy = anchored(LIMIT, start_us.parse().unwrap());
    let (start, mut seen) = (Instant::now(), String::new());
    let old = connect(url);
    while start.elapsed() < LOAD {
        // A new store knows no time of the server.
        let new = connect(url);
        for store in [&old, &old, &old, &new] {
            let verdict = check(store, &Check::new("k", &policy, 1)).await;
            seen += &format!("{} {}\n", verdict.time_us, u8::from(verdict.allowed));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    std::fs::write(output, seen).unwrap();
}

#[test]
fn law_1_and_2_processes_whose_clocks_differ_never_pass_a_calendar_limit_across_its_boundary_and_deny_no_unit_of_it() {
    let (server, directory) = (RedisServer::start(), Directory::new());
    let Some(library) = compile_clock(&directory) else { return };
    let start_us = server_us(&server) + u64::try_from(BEFORE_BOUNDARY.as_micros()).unwrap();
    let clocks = [-2, 0, 2];
    let processes = clocks.map(|ahead| spawn(&directory, &library, ahead, &server.url(), start_us));
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let mut seen: Vec<(u64, bool)> = Vec::new();
    for ahead in clocks {
        let mut text = String::new();
        File::open(directory.path(&format!("ahead{ahead}.out"))).unwrap().read_to_string(&mut text).unwrap();
        seen.extend(text.lines().map(|line| {
            let (time_us, allowed) = line.split_once(' ').unwrap();
            (time_us.parse().unwrap(), allowed == "1")
        }));
    }
    // Of equal times, what was admitted comes first.
    seen.sort_unstable_by_key(|(time_us, allowed)| (*time_us, !allowed));
    for (name, is_in) in [("before", false), ("after", true)] {
        let (mut admitted, mut denied) = (0, 0);
        for (time_us, allowed) in seen.iter().filter(|(time_us, _)| (*time_us >= start_us) == is_in) {
            admitted += u64::from(*allowed);
            denied += u64::from(!allowed);
            assert!(*allowed || admitted == LIMIT, "{name}: denied at {time_us} although {admitted} were admitted");
        }
        print_line(&format!("{name} the boundary: {admitted} admitted, {denied} denied"));
        assert_eq!(admitted, LIMIT, "{name} the boundary, after {denied} denials");
    }
}
