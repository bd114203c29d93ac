//! What a process writes before and after each call, and the lives of checks and holds that follow from it.

use std::{collections::BTreeMap, fs};

/// The size of a record in a file.
pub(super) const BYTES: usize = 40;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
pub(super) enum Kind {
    /// A hold is sent: key, cost.
    AskHold,
    /// A plain charge is sent: key, cost.
    AskCharge,
    /// It passed: the time of the store.
    Passed,
    /// It was denied.
    Denied,
    /// The call failed before it could charge.
    Failed,
    /// There was no answer.
    Unknown,
    /// A settlement is sent: the actual cost, the time of the process.
    AskSettlement,
    /// It was made: the time of the process.
    Settled,
    /// The hold had ended.
    Expired,
    /// The handle was dropped: the time of the process.
    Dropped,
}

const KINDS: [Kind; 10] = [
    Kind::AskHold,
    Kind::AskCharge,
    Kind::Passed,
    Kind::Denied,
    Kind::Failed,
    Kind::Unknown,
    Kind::AskSettlement,
    Kind::Settled,
    Kind::Expired,
    Kind::Dropped,
];

/// One record. `process` and `number` name the check; what `a` and `b` are depends on the kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: Kind,
    pub(super) process: u64,
    pub(super) number: u64,
    pub(super) a: u64,
    pub(super) b: u64,
}

impl Record {
    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let numbers = [self.kind as u64, self.process, self.number, self.a, self.b];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// The complete records of a file. A process may die before it has written any.
pub(super) fn read(path: &str) -> Vec<Record> {
    let bytes = fs::read(path).unwrap_or_default();
    let number = |chunk: &[u8], index: usize| u64::from_le_bytes(chunk[index * 8..][..8].try_into().unwrap());
    let record = |chunk: &[u8]| {
        let [kind, process, number, a, b] = [0, 1, 2, 3, 4].map(|index| number(chunk, index));
        Record { kind: KINDS[kind as usize], process, number, a, b }
    };
    bytes.chunks_exact(BYTES).map(record).collect()
}

/// A check with its one charge or hold, from the call until its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) key: u64,
    pub(super) cost: u64,
    pub(super) is_hold: bool,
    pub(super) answer: Answer,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// Charged or held at this time of the store.
    Passed(u64),
    Denied,
    /// The call failed before it could charge.
    Failed,
    /// The process was killed, or there was no answer in time.
    Unknown,
}

/// How a hold ended, as far as its process knew. Times are those of the process, whose clock is the store's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The process was killed first, so the time-to-live ended the hold.
    None,
    /// The settlement was made between these times.
    Settled { actual: u64, from: u64, until: u64 },
    /// The settlement was sent after this time. It may have been made, or the time-to-live ended the hold.
    Unknown { actual: u64, from: u64 },
    /// Dropped at this time.
    Dropped(u64),
}

/// Puts the records of each check together.
pub(super) fn lives(records: &[Record]) -> Vec<Life> {
    let mut lives: BTreeMap<(u64, u64), Life> = BTreeMap::new();
    for record in records {
        let name = (record.process, record.number);
        if matches!(record.kind, Kind::AskHold | Kind::AskCharge) {
            let is_hold = record.kind == Kind::AskHold;
            let life = Life { key: record.a, cost: record.b, is_hold, answer: Answer::Unknown, end: End::None };
            lives.insert(name, life);
            continue;
        }
        let life = lives.get_mut(&name).expect("a call is recorded before its answer");
        match record.kind {
            Kind::AskHold | Kind::AskCharge => {}
            Kind::Passed => life.answer = Answer::Passed(record.a),
            Kind::Denied => life.answer = Answer::Denied,
            Kind::Failed => life.answer = Answer::Failed,
            // Of a call or of a settlement: both are unknown until an answer is recorded.
            Kind::Unknown => {}
            Kind::AskSettlement => life.end = End::Unknown { actual: record.a, from: record.b },
            Kind::Settled => {
                let End::Unknown { actual, from } = life.end else { panic!("{life:?}") };
                life.end = End::Settled { actual, from, until: record.a };
            }
            // Of the two holds of a check, one may have been settled before the other expired.
            Kind::Expired => {}
            Kind::Dropped => life.end = End::Dropped(record.a),
        }
    }
    lives.into_values().collect()
}
