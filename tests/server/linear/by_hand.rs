//! Histories by hand: what the checker accepts, and what it refuses.

use crate::{
    history::Record,
    is_linearizable,
    specification::{Answer, Hold, LIMITS, Operation},
};

fn check(cost: u64, answer: Option<(bool, u64)>) -> Operation {
    let answer = answer.map(|(is_allowed, left)| Answer { is_allowed, available: [Some(left), None] });
    Operation::Check { costs: [cost, 0], hold: None, answer }
}

fn hold(number: u64, cost: u64, left: u64) -> Operation {
    let answer = Some(Answer { is_allowed: true, available: [Some(left), None] });
    Operation::Check { costs: [cost, 0], hold: Some(Hold { number, budget: 0 }), answer }
}

fn end(hold: u64, actual: u64, was_open: bool) -> Operation {
    Operation::End { hold, actual, was_open: Some(was_open) }
}

fn peek(available: u64) -> Operation {
    Operation::Peek { budget: 0, available }
}

/// Calls that come one after the other.
fn in_sequence(operations: &[Operation]) -> bool {
    let mut record = Record::new();
    for operation in operations {
        let call = record.call();
        record.answered(call, operation.clone());
    }
    is_linearizable(&record)
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
