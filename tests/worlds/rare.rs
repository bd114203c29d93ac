//! Rare paths that a world has taken, as far as they can be seen from outside: in decisions, in the events of observers
//! and in the commands at servers. A run of many worlds fails if one of them was not taken.

use std::{cell::RefCell, collections::BTreeMap};

use tollgate::observe::{Event, Observer};
use tollgate::{Decision, Error, ErrorKind, decision::Source};

use crate::server::reply::{Bytes, Reply};

/// The paths that many worlds have to take.
pub(crate) const PATHS: [&str; 35] = [
    "ban-by-hand",
    "ban-ended-by-hand",
    "batch",
    "block-settled",
    "block-taken",
    "breaker-closed",
    "breaker-half-open",
    "breaker-open",
    "breaker-open-again",
    "call-abandoned",
    "call-at-a-former-master",
    "call-beside-a-former-master",
    "check-evaluated-in-several-slots",
    "count-reset",
    "credit-of-more-than-was-spent",
    "debit",
    "denial-from-memory",
    "denial-of-the-queue",
    "hold-dropped",
    "hold-ended-by-time",
    "hold-ended-late",
    "hold-made",
    "hold-renewed",
    "hold-settled",
    "holds-alone",
    "receipt",
    "refund",
    "script-sent-whole",
    "second-of-two",
    "two-changes-by-hand",
    "units-credited",
    "units-recorded",
    "verdict-of-a-block",
    "verdict-of-the-fallback",
    "waiter-served",
];

thread_local! {
    static TAKEN: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts a path.
pub(crate) fn taken(path: &'static str) {
    TAKEN.with_borrow_mut(|taken| *taken.entry(path).or_default() += 1);
}

/// Takes the counts of this thread.
pub(crate) fn take() -> BTreeMap<&'static str, u64> {
    TAKEN.take()
}

/// What a decision shows. `waited` is in milliseconds.
pub(crate) fn decided(decision: &Decision, waited: u64) {
    match decision.source() {
        Source::DenyCache => taken("denial-from-memory"),
        Source::Lease => taken("verdict-of-a-block"),
        Source::Local => taken("verdict-of-the-fallback"),
        Source::Queue => taken("denial-of-the-queue"),
        Source::Store if waited > LONG_WAIT && decision.is_allowed() => taken("waiter-served"),
        _ => {}
    }
}

/// Longer than a check takes that nobody holds back, in milliseconds.
const LONG_WAIT: u64 = 60;

/// What an error shows.
pub(crate) fn failed(error: &Error) {
    if error.kind() == ErrorKind::Overloaded {
        taken("overload");
    }
}

/// Counts what observers are told.
pub(crate) struct Watcher;

impl Observer for Watcher {
    fn on_event(&self, event: &Event<'_>) {
        match (event.name(), event.outcome()) {
            ("breaker_change", "open") if event.to_string().contains("from=probing") => taken("breaker-open-again"),
            ("breaker_change", "open") => taken("breaker-open"),
            ("breaker_change", "probing") => taken("breaker-half-open"),
            ("breaker_change", _) => taken("breaker-closed"),
            ("abandonment", _) => taken("call-abandoned"),
            ("hold_end", "dropped") => taken("hold-dropped"),
            ("hold_end", "expired") => taken("hold-ended-late"),
            ("hold_end", "unanswered") => taken("hold-without-an-answer"),
            _ => {}
        }
    }
}

/// What a command of a script, and its reply, show.
pub(crate) fn commanded(command: &[Bytes], reply: &Reply) {
    let ends = command[0].eq_ignore_ascii_case(b"ZRANGE") && command.iter().any(|part| part == b"BYSCORE");
    if ends && matches!(reply, Reply::List(found) if !found.is_empty()) {
        taken("hold-ended-by-time");
    }
}

/// The fields of a charge in a call of the script: `lua/FORMAT.md` describes them.
const WIDTH: usize = 34;
const WIDTH_WITH_TIME: usize = 42;
const HOLDS: u8 = 8;
const RECEIPT: u8 = 16;
const SHADOW: u8 = 16;
const EVALUATE: u8 = 2;
const REFUND: u8 = 4;
const BY_HAND: u8 = 32;
/// The most units that one call of a caller costs.
const MOST_UNITS: f64 = 4.0;
/// The number of charges of a full call.
const FULL: usize = 128;

/// What a call of the script shows, by its keys and arguments.
pub(crate) fn called(is_whole: bool, keys: &[Bytes], arguments: &[Bytes]) {
    if is_whole {
        taken("script-sent-whole");
    }
    if keys.len() >= FULL {
        taken("full-call");
    }
    let Some(runs) = arguments.first() else { return };
    let (mut position, mut key, mut checks) = (1, 0, 0);
    while let Some(&[few, many, size, _, first_usage, ..]) = runs.get(position..) {
        let width = if first_usage % SHADOW == REFUND || first_usage >= BY_HAND { WIDTH_WITH_TIME } else { WIDTH };
        let (count, size) = (usize::from(u16::from_le_bytes([few, many])), usize::from(size));
        for number in 0..size {
            let at = position + 3 + number * width;
            let Some(charge) = runs.get(at..at + WIDTH) else { return };
            see(charge, keys.get(key + number).map_or(&[][..], Vec::as_slice));
        }
        checks += count;
        key += count * size;
        position += 3 + size * width;
    }
    if checks > 1 {
        taken("batch");
    }
}

/// What a charge shows.
fn see(charge: &[u8], key: &[u8]) {
    let cost = charge[26..].first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes));
    let is_of = |mode: &[u8]| key.windows(mode.len()).any(|part| part == mode);
    let (algorithm, usage) = (charge[0], charge[1]);
    match (algorithm, usage) {
        (HOLDS, 0) if charge[18..26] != [0; 8] => {
            taken(if is_of(b"lease") { "block-taken" } else { "hold-made" });
        }
        (HOLDS, 1) => taken(if is_of(b"lease") { "block-settled" } else { "hold-settled" }),
        (HOLDS, 2) => taken("hold-renewed"),
        (HOLDS, 4..) => taken("holds-alone"),
        (HOLDS, _) => {}
        (RECEIPT, _) => taken("receipt"),
        (_, REFUND) => taken("refund"),
        _ if usage % SHADOW == EVALUATE => taken("check-evaluated-in-several-slots"),
        _ if is_of(b"local") && cost > MOST_UNITS => taken("debit"),
        _ => {}
    }
}
