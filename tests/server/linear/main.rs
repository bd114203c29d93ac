//! Histories of four processes on one Redis are linearizable: each call takes effect at one instant between its begin
//! and its end, as if the calls came one after the other. Where windows pass, the instants are the times of the server.
//! The checker is that of another author.
#![allow(clippy::unwrap_used)]

mod by_hand;
mod crew;
mod history;
mod plain_script;
mod player;
mod specification;
#[path = "../support/mod.rs"]
mod support;
mod two_calls;
mod windows;
mod wire;
mod worker;

use std::time::{Duration, Instant};

use support::{asserts_times, is_thorough, print_line, seed};
use todc_utils::WGLChecker;

use self::player::{Style, play};
use self::specification::{Budgets, Operation};
use self::{crew::Crew, history::Record, plain_script::Leaving, windows::Windows, worker::Subject};

/// How many histories a run plays.
fn histories() -> u64 {
    match (asserts_times(), is_thorough()) {
        (true, _) => 1_000,
        (false, true) => 100,
        (false, false) => 50,
    }
}

fn is_linearizable(record: &Record<Operation>) -> bool {
    WGLChecker::<Budgets>::is_linearizable(record.history())
}

#[test]
fn law_1_2_and_3_histories_of_four_processes_with_kills_and_a_bad_network_are_linearizable() {
    let (started, mut judged) = (Instant::now(), Duration::ZERO);
    let (mut calls, mut unknown) = (0, 0);
    let mut crew = Crew::new(Subject::Tollgate);
    for seed in seed::seeds(histories()) {
        let record = play(&mut crew, seed, if seed % 2 == 0 { Style::Resets } else { Style::Remembers });
        let start = Instant::now();
        assert!(is_linearizable(&record), "seed {seed}: no order of the calls explains their answers: {record:#?}");
        judged += start.elapsed();
        calls += record.operations().count();
        unknown += record.open();
    }
    let (took, histories) = (started.elapsed(), histories());
    print_line(&format!(
        "linear histories={histories} calls={calls} without_an_answer={unknown} took={took:.1?} judged={judged:.1?}"
    ));
}

#[test]
fn a_store_that_reads_and_writes_in_two_calls_is_not_linearizable() {
    let mut right = Crew::new(Subject::Tollgate);
    let mut wrong = Crew::new(Subject::TwoCalls);
    let mut refused = 0;
    for seed in seed::seeds(10) {
        let record = play(&mut right, seed, Style::Plain);
        assert!(is_linearizable(&record), "seed {seed}: no order of the calls explains their answers: {record:#?}");
        refused += usize::from(!is_linearizable(&play(&mut wrong, seed, Style::Plain)));
    }
    print_line(&format!("linear: of 10 histories of two calls, {refused} are refused"));
    assert!(refused > 0, "the checker has found no fault");
}

/// Plays a history in which windows pass.
fn play_windows(crew: &mut Crew, seed: u64) -> Record<Operation> {
    let record = play(crew, seed, Style::Windows);
    assert_eq!(record.open(), 0, "seed {seed}: a call has no answer: {record:#?}");
    record
}

/// Whether calls are linearizable at the times of the server.
fn is_linearizable_in_time(record: &Record<Operation>) -> bool {
    WGLChecker::<Windows>::is_linearizable(record.history())
}

#[test]
fn law_1_2_3_4_and_5_histories_in_which_windows_pass_are_linearizable_at_the_times_of_the_server() {
    let (started, mut judged, mut calls) = (Instant::now(), Duration::ZERO, 0);
    let mut crew = Crew::new(Subject::Windows);
    for seed in seed::seeds(histories()) {
        let record = play_windows(&mut crew, seed);
        let start = Instant::now();
        assert!(
            is_linearizable_in_time(&record),
            "seed {seed}: no order of the calls explains their answers: {record:#?}"
        );
        judged += start.elapsed();
        calls += record.operations().count();
    }
    let (took, histories) = (started.elapsed(), histories());
    print_line(&format!(
        "linear, windows pass: histories={histories} calls={calls} took={took:.1?} judged={judged:.1?}"
    ));
}

#[test]
fn a_script_whose_units_leave_early_or_never_is_not_linearizable() {
    for leaving in [Leaving::Right, Leaving::Early, Leaving::Never] {
        let mut crew = Crew::new(Subject::PlainScript(leaving));
        let accepted = seed::seeds(10).filter(|&seed| is_linearizable_in_time(&play_windows(&mut crew, seed))).count();
        print_line(&format!("linear: of 10 histories of a script with units that leave {leaving:?}, {accepted} pass"));
        match leaving {
            Leaving::Right => assert_eq!(accepted, 10, "a right script is refused"),
            _ => assert!(accepted < 10, "the checker has found no fault"),
        }
    }
}

/// Not a test: the entry point of the worker processes.
#[test]
#[ignore = "started by the tests above"]
fn worker_process() {
    worker::main();
}
