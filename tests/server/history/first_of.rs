//! The law of alternatives from outside: four processes at once on one Redis. By the clock of the store, the second
//! policy is charged only while the first has no room, and a denial means that neither has.

use std::{collections::BTreeMap, env, fs, process::Child, time::Duration};

use tokio::task::JoinSet;
use tollgate::{Check, Limiter, Policy, RedisStore};

use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{print_line, random::Random};
use crate::{PROCESSES, requests, worker::start};

/// Few keys and short windows, so that both policies are always contended and their windows end many times.
const KEYS: u64 = 12;
const LIMITS: [u64; 2] = [40, 25];
const WINDOWS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(30)];
const MAX_COST: u64 = 10;
const IN_FLIGHT: u64 = 128;

/// One decided check: the number of the policy that was charged, or of both policies for a denial.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    time_us: u64,
    charged: usize,
    cost: u64,
}

#[test]
fn law_1_and_2_four_processes_charge_the_second_policy_only_while_the_first_has_no_room() {
    let (server, directory) = (RedisServer::start(), Directory::new());
    let output = |process: u64| directory.path(&process.to_string());
    let children: Vec<Child> = (0..PROCESSES)
        .map(|process| {
            let load = format!("{} {} {process} {}", server.url(), requests(60_000), output(process));
            start("first_of::first_of_worker_process", &[("FIRST_OF_LOAD", &load)])
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let mut found = Found::default();
    let entries: Vec<Entry> = (0..PROCESSES).flat_map(|process| read(&output(process))).collect();
    for key in 0..KEYS {
        judge(entries.iter().filter(|entry| entry.key == key), &mut found);
    }
    print_line(&format!("history first of several checks={} {found:?}", entries.len()));
    assert_eq!(found.charged.iter().sum::<u64>(), entries.len() as u64);
    assert_eq!((found.over, found.too_early, found.false_denials), (0, 0, 0), "{found:?}");
    assert!(found.charged.iter().all(|times| *times > 1_000), "one of the answers is rare: {found:?}");
}

/// What a judge has seen.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// How often the first policy, the second and none was charged.
    charged: [u64; 3],
    /// Charges above the limit of their policy.
    over: u64,
    /// Charges of the second policy although the first had room.
    too_early: u64,
    /// Denials although one of them had room.
    false_denials: u64,
}

/// Judges the checks of one key by two lists of charges.
fn judge<'a>(entries: impl Iterator<Item = &'a Entry>, found: &mut Found) {
    // Within one instant room only gets less. So if any order explains the answers of that instant, this one does:
    // first the charges of the first policy, then those of the second, then the denials.
    let ordered: BTreeMap<_, _> =
        entries.enumerate().map(|(number, entry)| ((entry.time_us, entry.charged, number), entry)).collect();
    let mut charges: [Vec<(u64, u64)>; 2] = Default::default();
    for Entry { time_us, charged, cost, .. } in ordered.into_values() {
        let has_room = |policy: usize| {
            let window_us = u64::try_from(WINDOWS[policy].as_micros()).unwrap();
            let recent = charges[policy].iter().rev().take_while(|(at_us, _)| at_us + window_us > *time_us);
            recent.map(|(_, cost)| *cost).sum::<u64>() + cost <= LIMITS[policy]
        };
        let room = [has_room(0), has_room(1)];
        found.charged[*charged] += 1;
        match *charged {
            0 => found.over += u64::from(!room[0]),
            1 => {
                found.over += u64::from(!room[1]);
                found.too_early += u64::from(room[0]);
            }
            _ => found.false_denials += u64::from(room[0] || room[1]),
        }
        if let Some(charges) = charges.get_mut(*charged) {
            charges.push((*time_us, *cost));
        }
    }
}

#[test]
fn the_judge_of_alternatives_sees_each_mistake() {
    let found = |answers: &[(u64, usize, u64)]| {
        let mut found = Found::default();
        let entry = |&(time_us, charged, cost): &(u64, usize, u64)| Entry { key: 0, time_us, charged, cost };
        judge(answers.iter().map(entry).collect::<Vec<_>>().iter(), &mut found);
        (found.over, found.too_early, found.false_denials)
    };
    assert_eq!(found(&[(1, 0, 40), (1, 1, 25), (1, 2, 1)]), (0, 0, 0));
    assert_eq!(found(&[(1, 0, 40), (20_000, 1, 25), (20_001, 0, 40), (20_001, 2, 1)]), (0, 0, 0));
    assert_eq!(found(&[(1, 0, 40), (20_000, 0, 1)]), (1, 0, 0));
    assert_eq!(found(&[(1, 0, 40), (20_001, 1, 1)]), (0, 1, 0));
    assert_eq!(found(&[(1, 0, 36), (2, 1, 4)]), (0, 1, 0));
    assert_eq!(found(&[(1, 0, 40), (1, 1, 21), (2, 2, 4)]), (0, 0, 1));
    assert_eq!(found(&[(1, 0, 40), (1, 1, 25), (2, 1, 1)]), (1, 0, 0));
}

/// Not a test: the entry point of the worker processes.
#[test]
#[ignore = "started by the test above"]
fn first_of_worker_process() {
    let load = env::var("FIRST_OF_LOAD").unwrap();
    let [url, requests, process, output] = load.split(' ').collect::<Vec<_>>()[..] else { panic!("{load}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entries = runtime.block_on(run(url, requests.parse().unwrap(), process.parse().unwrap()));
    let line = |entry: &Entry| format!("{} {} {} {}\n", entry.key, entry.time_us, entry.charged, entry.cost);
    fs::write(output, entries.iter().map(line).collect::<String>()).unwrap();
}

async fn run(url: &str, requests: u64, process: u64) -> Vec<Entry> {
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().deadline(Duration::from_secs(30)).open(url).unwrap();
    let limiter = Limiter::new(store);
    let policies = [0, 1].map(|number| Policy::new(format!("p{number}"), LIMITS[number], WINDOWS[number]).unwrap());
    let mut tasks = JoinSet::new();
    for task in 0..IN_FLIGHT {
        let (limiter, policies) = (limiter.clone(), policies.clone());
        tasks.spawn(async move {
            let mut random = Random(process * IN_FLIGHT + task);
            let mut entries = Vec::new();
            for _ in 0..requests.div_ceil(IN_FLIGHT) {
                let (key, cost) = (random.below(KEYS), random.cost(MAX_COST));
                let decision = limiter.check_all(Check::first_of(key, &policies, cost)).await.unwrap();
                let charged = match (decision.is_allowed(), decision.policies()[0].policy.name()) {
                    (false, _) => 2,
                    (true, name) => usize::from(name == "p1"),
                };
                entries.push(Entry { key, time_us: crate::support::time_us(&decision).unwrap(), charged, cost });
            }
            entries
        });
    }
    tasks.join_all().await.concat()
}

fn read(path: &str) -> Vec<Entry> {
    let text = fs::read_to_string(path).unwrap();
    let entry = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [key, time_us, charged, cost] = numbers[..] else { panic!("{line}") };
        Entry { key, time_us, charged: charged as usize, cost }
    };
    text.lines().map(entry).collect()
}
