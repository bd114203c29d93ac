//! Histories by hand: what the checker accepts, and what it refuses.

use todc_utils::WGLChecker;

use crate::specification::{Answer, Hold, LIMITS, Operation};
use crate::{history::Record, is_linearizable, windows::Windows};

fn check(cost: u64, answer: Option<(bool, u64)>) -> Operation {
    let answer = answer.map(|(is_allowed, left)| told(is_allowed, left));
    Operation::Check { costs: [cost, 0], hold: None, answer }
}

fn told(is_allowed: bool, left: u64) -> Answer {
    Answer { is_allowed, available: [Some(left), None], time_us: 0, wait_us: None }
}

fn hold(number: u64, cost: u64, left: u64) -> Operation {
    let answer = Some(told(true, left));
    Operation::Check { costs: [cost, 0], hold: Some(Hold { number, budget: 0 }), answer }
}

fn end(hold: u64, actual: u64, was_open: bool) -> Operation {
    Operation::End { hold, actual, was_open: Some(was_open) }
}

fn peek(available: u64) -> Operation {
    Operation::Peek(told(true, available))
}

/// Calls that come one after the other.
fn sequence(operations: &[Operation]) -> Record<Operation> {
    let mut record = Record::new();
    for operation in operations {
        let call = record.call();
        record.answered(call, operation.clone());
    }
    record
}

fn in_sequence(operations: &[Operation]) -> bool {
    is_linearizable(&sequence(operations))
}

/// Calls that overlap.
fn at_once(operations: &[Operation]) -> bool {
    let mut record = Record::new();
    let calls: Vec<usize> = operations.iter().map(|_| record.call()).collect();
    for (call, operation) in calls.into_iter().zip(operations) {
        record.answered(call, operation.clone());
    }
    is_linearizable(&record)
}

#[test]
fn the_checker_tells_wrong_answers_from_right_ones() {
    let limit = LIMITS[0];
    assert!(in_sequence(&[check(10, Some((true, limit - 10))), check(limit, Some((false, limit - 10)))]));
    assert!(!in_sequence(&[check(10, Some((true, limit - 10))), check(limit, Some((true, 0)))]), "above the limit");
    assert!(!in_sequence(&[check(10, Some((true, limit - 10))), check(1, Some((false, limit - 10)))]), "it would fit");
    let lost = [check(4, Some((true, limit - 4))), check(4, Some((true, limit - 4)))];
    assert!(!at_once(&lost), "one charge is lost");
    assert!(
        at_once(&[check(5, Some((true, limit - 9))), check(4, Some((true, limit - 4)))]),
        "the second one came first"
    );
    assert!(!in_sequence(&[check(5, Some((true, limit - 9))), check(4, Some((true, limit - 4)))]));
    assert!(in_sequence(&[hold(1, 8, limit - 8), end(1, 3, true), peek(limit - 3), end(1, 3, false)]));
    assert!(!in_sequence(&[hold(1, 8, limit - 8), end(1, 0, true), peek(limit - 8)]), "nothing was released");
    let reset = Operation::Reset { budget: 0, found: Some(true) };
    assert!(in_sequence(&[hold(1, 8, limit - 8), reset.clone(), end(1, 3, false), peek(limit)]));
    assert!(!in_sequence(&[reset, peek(limit)]), "there was nothing to forget");
}

#[test]
fn a_call_without_an_answer_takes_effect_at_any_later_time_or_never() {
    let (limit, open) = (LIMITS[0], check(7, None));
    // The peeks follow the call, whose caller has no answer.
    let is_possible = |available: &[u64]| {
        let mut record = Record::new();
        let call = record.call();
        record.unknown(call, open.clone());
        for &available in available {
            let call = record.call();
            record.answered(call, peek(available));
        }
        is_linearizable(&record)
    };
    assert!(is_possible(&[limit, limit]) && is_possible(&[limit, limit - 7]) && is_possible(&[limit - 7, limit - 7]));
    assert!(!is_possible(&[limit - 7, limit]), "an effect was undone");
    assert!(!is_possible(&[limit - 14]), "one call took effect twice");
}

/// A check at this time, with a cost for each budget. `Err` has the wait that a denial tells.
fn check_at(time_us: u64, costs: [u64; 2], left: [u64; 2], answer: Result<(), u64>) -> Operation {
    let available = [0, 1].map(|budget| (costs[budget] > 0).then_some(left[budget]));
    let answer = Answer { is_allowed: answer.is_ok(), available, time_us, wait_us: answer.err() };
    Operation::Check { costs, hold: None, answer: Some(answer) }
}

#[test]
fn the_checker_tells_when_units_leave_their_window() {
    let is_right = |operations: &[Operation]| WGLChecker::<Windows>::is_linearizable(sequence(operations).history());
    let [log, fixed] = LIMITS;
    // The windows are 10 ms and 15 ms long. The second check is 3 ms later.
    let full = [check_at(42_000, [20, 0], [log - 20, 0], Ok(())), check_at(45_000, [log - 20, 0], [0, 0], Ok(()))];
    let then = |last: Operation| is_right(&[full[0].clone(), full[1].clone(), last]);
    assert!(then(check_at(51_999, [1, 0], [0, 0], Err(1))), "the first units leave after 10 ms");
    assert!(then(check_at(52_000, [1, 0], [19, 0], Ok(()))));
    assert!(!then(check_at(51_999, [1, 0], [19, 0], Ok(()))), "units leave early");
    assert!(!then(check_at(52_000, [1, 0], [0, 0], Err(1))), "units leave late");
    assert!(then(check_at(46_000, [25, 0], [0, 0], Err(9_000))), "both have to leave");
    assert!(!then(check_at(46_000, [25, 0], [0, 0], Err(6_000))), "the wait is too short");
    assert!(!then(check_at(44_000, [1, 0], [0, 0], Err(8_000))), "time goes back");

    let spent = check_at(42_000, [1, fixed], [log - 1, 0], Ok(()));
    let then = |last: Operation| is_right(&[spent.clone(), last]);
    assert!(then(check_at(44_999, [0, 1], [0, 0], Err(1))), "the window ends at a multiple of 15 ms");
    assert!(then(check_at(45_000, [0, 1], [0, fixed - 1], Ok(()))));
    assert!(then(check_at(43_000, [log, 1], [log - 1, 0], Err(9_000))), "of two waits, the longer one");
    assert!(!then(check_at(43_000, [log, 1], [log - 1, 0], Err(2_000))));
}
