//! What the test writes to a worker process, and what the worker answers: lines of numbers.

use std::str::FromStr;

use super::specification::{Answer, Hold};

/// A call for one of the clients of a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: u64,
    pub(super) key: u64,
    /// Whether the worker remembers denials.
    pub(super) remembers: bool,
    pub(super) call: Call,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Check([u64; 2]),
    Hold { hold: Hold, costs: [u64; 2] },
    End { hold: u64, actual: u64 },
    Reset(usize),
    Peek(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    /// The worker can be called.
    Ready,
    /// The call has done nothing.
    Failed,
    /// The call may have taken effect, or may yet.
    Unknown,
    Decided(Answer),
    Ended {
        was_open: bool,
    },
    Reset {
        found: bool,
    },
}

/// Stands for `None`.
const NOTHING: u64 = u64::MAX;
/// Before each reply, because the test harness prints lines too.
const MARK: &str = "reply ";

fn numbers<const N: usize>(line: &str) -> [u64; N] {
    let numbers: Vec<u64> = line.split(' ').map(|number| u64::from_str(number).unwrap()).collect();
    numbers.try_into().unwrap()
}

fn line(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

impl Request {
    pub(super) fn to_line(self) -> String {
        let call = match self.call {
            Call::Check([one, other]) => [0, 0, one, other, 0],
            Call::Hold { hold, costs: [one, other] } => [1, hold.number, one, other, hold.budget as u64],
            Call::End { hold, actual } => [2, hold, actual, 0, 0],
            Call::Reset(budget) => [3, budget as u64, 0, 0, 0],
            Call::Peek(budget) => [4, budget as u64, 0, 0, 0],
        };
        line(&[&[self.client, self.key, self.remembers.into()][..], &call].concat())
    }

    pub(super) fn from_line(line: &str) -> Self {
        let [client, key, remembers, call, a, b, c, d] = numbers(line);
        let call = match call {
            0 => Call::Check([b, c]),
            1 => Call::Hold { hold: Hold { number: a, budget: d as usize }, costs: [b, c] },
            2 => Call::End { hold: a, actual: b },
            3 => Call::Reset(a as usize),
            4 => Call::Peek(a as usize),
            _ => panic!("{line}"),
        };
        Self { client, key, remembers: remembers == 1, call }
    }
}

impl Reply {
    pub(super) fn to_line(self, client: u64) -> String {
        let reply = match self {
            Self::Ready => [0; 6],
            Self::Failed => [1, 0, 0, 0, 0, 0],
            Self::Unknown => [2, 0, 0, 0, 0, 0],
            Self::Decided(Answer { is_allowed, available, time_us, wait_us }) => {
                let [one, other, wait] = [available[0], available[1], wait_us].map(|told| told.unwrap_or(NOTHING));
                [3, is_allowed.into(), one, other, time_us, wait]
            }
            Self::Ended { was_open } => [4, was_open.into(), 0, 0, 0, 0],
            Self::Reset { found } => [5, found.into(), 0, 0, 0, 0],
        };
        format!("{MARK}{}", line(&[&[client][..], &reply].concat()))
    }

    /// The client and its reply; `None` for a line of the test harness.
    pub(super) fn from_line(line: &str) -> Option<(u64, Self)> {
        let [client, reply, a, b, c, time_us, wait] = numbers(line.strip_prefix(MARK)?);
        let told = |number: u64| (number != NOTHING).then_some(number);
        let reply = match reply {
            0 => Self::Ready,
            1 => Self::Failed,
            2 => Self::Unknown,
            3 => {
                let available = [told(b), told(c)];
                Self::Decided(Answer { is_allowed: a == 1, available, time_us, wait_us: told(wait) })
            }
            4 => Self::Ended { was_open: a == 1 },
            5 => Self::Reset { found: a == 1 },
            _ => panic!("{line}"),
        };
        Some((client, reply))
    }
}
