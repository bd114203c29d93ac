//! The files that `examples/inspect` reads: none is endless, and none makes it wait for ever.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::inspect::{Ran, inspect};
use crate::{built::PROGRAMS, support::redis_server::Directory};

const REDIS: [&str; 2] = ["--redis", "redis://127.0.0.1:1"];

/// Runs the program, which has to end within seconds.
fn ends(arguments: &[&str]) -> Ran {
    // A build of the programs takes longer.
    std::sync::LazyLock::force(&PROGRAMS);
    let start = Instant::now();
    let ran = inspect(&[&["peek", "--timeout", "300ms"], arguments].concat());
    assert!(start.elapsed() < Duration::from_secs(20), "{arguments:?}: {ran:?}");
    ran
}

/// The arguments that name a file, in all the ways in which the program reads one.
fn naming(file: &str) -> Vec<Vec<String>> {
    let policy = ["--policy", "p=60/min"];
    let own = |arguments: &[&str]| arguments.iter().map(|argument| argument.to_string()).collect::<Vec<_>>();
    vec![
        own(&[&REDIS[..], &["--config", file, "text:alice"]].concat()),
        own(&[&REDIS[..], &policy, &["--secret-file", file, "text:alice"]].concat()),
        own(&[&REDIS[..], &policy, &["--ca", file, "text:alice"]].concat()),
        own(&[&REDIS[..], &policy, &[&format!("token:@{file}")]].concat()),
        own(&[&["--redis", &format!("@{file}")], &policy[..], &["text:alice"]].concat()),
    ]
}

fn each(file: &str, message: &str) {
    for arguments in naming(file) {
        let ran = ends(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(&format!("cannot read {file}: {message}")), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {ran:?}");
    }
}

#[test]
fn inspect_ends_with_a_message_if_no_program_writes_to_a_pipe() {
    let files = Directory::new();
    let pipe = files.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    each(&pipe, "no program writes to this pipe");
}

#[test]
fn inspect_reads_no_more_of_an_endless_file_than_a_file_may_have() {
    each("/dev/zero", "it is larger than ");
}

#[test]
fn inspect_reads_the_output_of_a_command() {
    let files = Directory::new();
    let limits = "[policies.per-client]\nrate = \"60/min\"\n[default]\npolicies = [\"per-client\"]\n";
    let file = files.write("limits.toml", limits);
    let program = PROGRAMS.inspect.to_str().unwrap();
    // The command writes later than the program opens the pipe.
    for command in [format!("cat {file}"), format!("sleep 2; cat {file}")] {
        let line = format!("{program} peek {} --timeout 300ms --config <({command}) text:alice", REDIS.join(" "));
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && stderr.contains("the store is unavailable"), "{stderr}");
    }
}
