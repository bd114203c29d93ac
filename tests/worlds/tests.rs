//! The worlds that every run of the tests visits: those that are kept, and some of fixed seeds.

use std::process::{Command, Output};

fn worlds(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-worlds")).args(arguments).output().expect("the program starts")
}

fn succeeds(arguments: &[&str]) {
    let Output { status, stdout, stderr } = worlds(arguments);
    let text = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(status.success(), "{arguments:?}\n{text}");
}

#[test]
fn worlds_that_once_failed_hold_and_known_failures_still_show() {
    succeeds(&["kept"]);
}

#[test]
fn no_law_is_broken_in_the_worlds_of_fixed_seeds() {
    succeeds(&["1", "100"]);
}

#[test]
fn the_same_seeds_give_the_same_bytes_on_one_core_and_beside_other_worlds() {
    let alone = worlds(&["trace", "500", "12"]).stdout;
    let together = std::thread::scope(|scope| {
        [(); 2]
            .map(|()| scope.spawn(|| worlds(&["trace", "500", "12"]).stdout))
            .map(|run| run.join().expect("no panic"))
    });
    for run in together {
        assert_eq!(String::from_utf8_lossy(&alone), String::from_utf8_lossy(&run));
    }
}

/// Whose runtimes compare their times: the later they are made, the more real time has passed.
const PLANS_OF_THREE_RUNTIMES: [&str; 6] = [
    "seed=51 modes=slots,counter,local-slots servers=3 processes=2 runtimes=3 callers=3 delay=0 jitter=0 load=3466 \
     faults=freeze@1469+197:p0:s1",
    "seed=73 modes=lease,pair,tally servers=3 processes=3 runtimes=3 callers=6 delay=2 jitter=1 load=2097 \
     faults=loading@1232+465:p0:s0",
    "seed=106 modes=lease,ban servers=1 processes=1 runtimes=3 callers=7 delay=0 jitter=0 load=2400 faults=-",
    "seed=242 modes=lease-beside-holds servers=1 processes=3 runtimes=3 callers=2 delay=0 jitter=0 load=2400 faults=-",
    "seed=295 modes=acquire,web-bill,web-holds,lease servers=1 processes=3 runtimes=3 callers=4 delay=3 jitter=3 \
     load=2156 faults=busy@1191+370:p0:s0",
    "seed=502088 modes=counter,acquire,bill servers=1 processes=1 runtimes=3 callers=4 delay=0 jitter=0 load=2400 \
     faults=-",
];

#[test]
fn all_calls_of_several_runtimes_are_the_same_in_each_run_of_a_world() {
    for plan in PLANS_OF_THREE_RUNTIMES {
        let [first, second] = [(); 2].map(|()| worlds(&["plan", plan]).stdout);
        assert!(first.len() > 1_000, "{plan}");
        assert_eq!(String::from_utf8_lossy(&first), String::from_utf8_lossy(&second), "{plan}");
    }
}

#[test]
fn the_simulated_server_answers_the_script_as_redis_does() {
    succeeds(&["compare", "1", "5000"]);
}

#[test]
fn every_mistake_still_applies() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let patches = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/mistakes")).expect("the folder is there");
    let (mut count, mut stale) = (0, vec![]);
    let patches = patches.map(|patch| patch.expect("the folder can be read").path());
    for patch in patches.filter(|path| path.extension().is_some_and(|extension| extension == "patch")) {
        let mut command = Command::new("patch");
        command.args(["--dry-run", "--force", "--fuzz=0", "--strip=1", "--directory", root, "--input"]).arg(&patch);
        count += 1;
        if !command.output().expect("patch starts").status.success() {
            stale.push(patch);
        }
    }
    assert!(count >= 20 && stale.is_empty(), "{count} mistakes, of which these no longer apply: {stale:?}");
}
