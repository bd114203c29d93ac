//! The checks of a call in every form that the script knows, and a strict reader of the reply.

use std::fmt;

use crate::lua::call::{
    BAN_BY_HAND, COMMIT, COUNT_REJECTED, EVALUATE, Policy, REFUND, SLIDING_WINDOW_COUNTER, SLIDING_WINDOW_LOG, UNBAN,
};

pub(super) const NO_HOLD: [u8; 8] = [0; 8];
pub(super) const BAN: u8 = 8;
pub(super) const SHADOW: u8 = 16;
const HOLDS: u8 = 8;
/// The first usage of a change by hand, which charges units.
const RECORD: u8 = 32;
const CREDIT: u8 = 33;
const FORGET_DENIALS: u8 = 36;

/// What a check does with the holds of its charge, in the numbers of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// A check beside holds; with an id it holds its cost.
    Check([u8; 8]),
    Settle([u8; 8], u64),
    Renew([u8; 8]),
}

/// One charge of a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) policy: Policy,
    pub(super) usage: u8,
    pub(super) cost: u64,
    /// The holds beside the charge, and whether unsettled ones are released.
    pub(super) holds: Option<(Change, bool)>,
}

impl Charge {
    pub(super) fn of(policy: Policy, usage: u8, cost: u64) -> Self {
        Self { policy, usage, cost, holds: None }
    }

    /// Whether the charge has changed a count although its check has failed or was denied.
    fn counts_rejections(&self) -> bool {
        !self.is_by_hand() && (self.usage % 2 == COUNT_REJECTED || self.usage == BAN)
    }

    fn is_by_hand(&self) -> bool {
        self.usage >= RECORD
    }
}

/// Equal checks.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) charges: Vec<Charge>,
    /// The time of the commit that a refund undoes.
    pub(super) committed_us: u64,
    /// How long a ban by hand lasts.
    pub(super) ban_us: u64,
}

impl Plan {
    pub(super) fn new(charges: Vec<Charge>) -> Self {
        Self { charges, committed_us: 0, ban_us: 60_000_000 }
    }

    /// The number of keys of each check.
    pub(super) fn keys(&self) -> usize {
        self.charges.iter().map(|charge| 1 + usize::from(charge.holds.is_some())).sum()
    }

    /// Whether this key of a check holds open holds.
    pub(super) fn is_of_holds(&self, key: usize) -> bool {
        let kinds = self.charges.iter().flat_map(|charge| [Some(false), charge.holds.map(|_| true)]);
        kinds.flatten().nth(key).unwrap()
    }

    /// Whether the checks report only that a count was changed.
    fn is_change(&self) -> bool {
        self.charges[0].usage == REFUND || self.charges[0].is_by_hand()
    }

    /// The plan that bans the key of the charge at this place among the keys.
    pub(super) fn ban(&self, key: usize, ban_us: u64) -> Self {
        let charges = self.charges.iter().flat_map(|charge| [Some(charge), charge.holds.map(|_| charge)]);
        let policy = charges.flatten().nth(key).unwrap().policy;
        Self { ban_us, ..Self::new(vec![Charge::of(policy, BAN_BY_HAND, 0)]) }
    }

    /// Whether a check that fails leaves all values as they were.
    pub(super) fn fails_without_change(&self) -> bool {
        // Holds whose time has come end before anything else.
        !self.charges.iter().any(|charge| charge.counts_rejections() || charge.holds.is_some())
    }

    /// The first argument of a call with these numbers of checks, each a run.
    pub(super) fn packed(&self, runs: &[usize]) -> Vec<u8> {
        let mut flags = if self.keys() > 1 { 32 } else { 0 };
        let mut check = Vec::new();
        for charge in &self.charges {
            flags |= 1 << (charge.policy.algorithm - 1);
            let start = check.len();
            check.extend(charge.policy.packed(charge.usage));
            check.extend((charge.cost as f64).to_le_bytes());
            if charge.usage == REFUND {
                flags |= 16;
                check.extend((self.committed_us as f64).to_le_bytes());
            } else if charge.is_by_hand() {
                flags |= 64;
                check.extend((self.ban_us as f64).to_le_bytes());
            }
            let Some((change, is_released)) = charge.holds else { continue };
            flags |= 128;
            check[start] += HOLDS;
            let (usage, id, actual) = match change {
                Change::Check(id) => (0, id, 0),
                Change::Settle(id, actual) => (1, id, actual),
                Change::Renew(id) => (2, id, 0),
            };
            check.extend([HOLDS, usage]);
            check.extend(f64::from(u8::from(is_released)).to_le_bytes());
            check.extend(60e6_f64.to_le_bytes());
            check.extend(id);
            check.extend((actual as f64).to_le_bytes());
        }
        let mut packed = vec![flags];
        for &checks in runs {
            packed.extend(u16::try_from(checks).unwrap().to_le_bytes());
            packed.push(u8::try_from(self.keys()).unwrap());
            packed.extend(&check);
        }
        packed
    }

    /// Reads the reply to this number of checks. Panics if anything is out of range or left over.
    pub(super) fn read(&self, reply: &[u8], checks: usize) -> Vec<Outcome> {
        let keys = checks * self.keys();
        let double = |index: usize| f64::from_le_bytes(reply[8 * index..][..8].try_into().unwrap());
        let (numbers, times) = (|key: usize| double(1 + key), |key: usize| double(1 + keys + key));
        let lengths = (0..keys).filter(|&key| numbers(key) < 0.0).map(times);
        let errors_at = reply.len() - lengths.map(natural).sum::<u64>() as usize;
        let mut more = (1 + 2 * keys..errors_at / 8).map(double);
        assert_eq!(errors_at % 8, 0, "whole numbers before the errors");
        let mut errors = &reply[errors_at..];
        let outcomes = (0..checks).map(|check| {
            let mut key = check * self.keys();
            if numbers(key) < 0.0 {
                assert!((key..key + self.keys()).all(|key| numbers(key) == -1.0));
                let (text, rest) = errors.split_at(times(key) as usize);
                errors = rest;
                return match text.strip_prefix(b"BANNED") {
                    Some(banned) => self.read_banned(banned),
                    None => Outcome::Failed(String::from_utf8_lossy(text).into_owned()),
                };
            }
            let mut read = Vec::new();
            for charge in &self.charges {
                let (number, time) = (natural(numbers(key)), natural(times(key)));
                let (fits, has_more) = (number % 2 == 1, number / 2 % 2 == 1);
                read.extend([number, time]);
                let mut wait = || match more.next().unwrap() {
                    -1.0 => u64::MAX,
                    wait => natural(wait),
                };
                let is_log = charge.policy.algorithm == SLIDING_WINDOW_LOG && !self.is_change();
                let count = usize::from(has_more) * if is_log && !fits { 2 } else { 1 };
                assert!(count == 0 || is_log || charge.policy.algorithm == SLIDING_WINDOW_COUNTER);
                read.extend((0..count).map(|_| wait()));
                let available = if is_log && !has_more && !fits { 0 } else { number / 4 };
                assert!(!is_log || available <= 1 << 40, "{available} available");
                key += 1;
                let Some((change, _)) = charge.holds else { continue };
                let (number, time) = (natural(numbers(key)), natural(times(key)));
                read.extend([number, time]);
                key += 1;
                let held = number / 4;
                if is_log && held > 0 && matches!(change, Change::Check(_)) {
                    let count = usize::from(number % 2 == 0) + usize::from(available < held);
                    read.extend((0..count).map(|_| wait()));
                }
            }
            Outcome::Decided(read)
        });
        let outcomes: Vec<_> = outcomes.collect();
        assert_eq!((more.next(), errors.len()), (None, 0), "the reply has more");
        outcomes
    }

    /// Reads what a check with a banned key reports: the ends of bans, and a reply to this check alone.
    fn read_banned(&self, text: &[u8]) -> Outcome {
        let (ends, reply) = text.split_at(8 * self.keys());
        let mut numbers: Vec<_> =
            ends.chunks_exact(8).map(|end| natural(f64::from_le_bytes(end.try_into().unwrap()))).collect();
        match self.read(reply, 1).remove(0) {
            Outcome::Decided(others) => numbers.extend(others),
            other => panic!("{other:?} beside a ban"),
        }
        Outcome::Banned(numbers)
    }
}

/// A number that the client reads without loss.
fn natural(number: f64) -> u64 {
    assert!((0.0..2_f64.powi(55)).contains(&number), "{number}");
    number as u64
}

/// What a call says about one check.
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Outcome {
    /// The numbers of all charges.
    Decided(Vec<u64>),
    /// The ends of bans, and the numbers of all charges.
    Banned(Vec<u64>),
    Failed(String),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(numbers) => write!(f, "{numbers:?}"),
            Self::Banned(numbers) => write!(f, "banned {numbers:?}"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// Checks of every form: each algorithm alone, in pairs, with bans, with holds, refunds, and changes by hand.
pub(super) fn all_plans() -> Vec<Plan> {
    let policies = |limit: u64, window_us: u64| {
        (1..=4).map(move |algorithm| Policy {
            algorithm,
            limit,
            window_us,
            parameter: if algorithm == SLIDING_WINDOW_LOG { 1 } else { limit },
        })
    };
    let mut plans = Vec::new();
    for policy in policies(5, 1_000_000).chain(policies(100, 60_000_000)).chain(policies(1 << 40, 86_400_000_000)) {
        let coarse = Policy { parameter: 60_000, ..policy };
        let policy = if policy.algorithm == SLIDING_WINDOW_LOG && policy.limit == 100 { coarse } else { policy };
        let cost = policy.limit / 40 + 1;
        let one = |usage, cost| Plan::new(vec![Charge::of(policy, usage, cost)]);
        plans.extend([one(COMMIT, cost), one(COMMIT, 0), one(COUNT_REJECTED, cost), one(EVALUATE, cost)]);
        plans.extend([one(REFUND, cost), one(RECORD, cost), one(CREDIT, cost), one(BAN_BY_HAND, 0), one(UNBAN, 0)]);
        let other = Policy { limit: policy.limit.max(2) - 1, ..policy };
        let other = Policy { parameter: other.parameter.min(other.limit), ..other };
        let next = Policy { algorithm: policy.algorithm % 4 + 1, parameter: 5, ..policy };
        for (second, usage) in [(other, COMMIT), (next, COMMIT), (next, COUNT_REJECTED), (next, SHADOW)] {
            plans.push(Plan::new(vec![Charge::of(policy, COMMIT, cost), Charge::of(second, usage, 1)]));
            plans.push(Plan::new(vec![Charge::of(second, usage, 1), Charge::of(policy, COMMIT, cost)]));
        }
        plans.push(Plan::new(vec![Charge::of(policy, COMMIT, cost), Charge::of(next, BAN, 1)]));
        for (first, second) in [(RECORD, RECORD), (CREDIT, CREDIT), (BAN_BY_HAND, BAN_BY_HAND), (UNBAN, FORGET_DENIALS)]
        {
            plans.push(Plan::new(vec![Charge::of(policy, first, cost), Charge::of(next, second, 1)]));
        }
        let id = *b"holdhold";
        for change in [Change::Check(NO_HOLD), Change::Check(id), Change::Settle(id, 2), Change::Renew(id)] {
            let cost = if matches!(change, Change::Check(_)) { cost } else { 0 };
            for released in [false, true] {
                let held = Charge { holds: Some((change, released)), ..Charge::of(policy, COMMIT, cost) };
                plans.push(Plan::new(vec![held]));
                if matches!(change, Change::Check(_)) && !released {
                    plans.push(Plan::new(vec![Charge::of(next, COMMIT, 1), held]));
                    plans.push(Plan::new(vec![held, Charge { usage: SHADOW, ..held }]));
                }
            }
        }
    }
    plans
}
