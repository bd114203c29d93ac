//! Callers who charge units, charge them although they do not fit, and give them back.

use tollgate::{Check, Policy};

use super::{Caller, impatient::Patience};
use crate::changes::{Changing, What};
use crate::keys::{KEYS, key_name};
use crate::{plan::mode::Mode, rare};

/// The most units that are given back at once: more than a caller has charged.
const MOST_BACK: u64 = 6;
/// The last key, to which nothing is given back: there it shows that all is counted that is charged.
const NEVER_CREDITED: u64 = KEYS - 1;

impl Caller {
    pub(super) async fn spend_or_give_back(&mut self) {
        match self.rng.below(40) {
            0 if self.may_record() => self.change(What::Record).await,
            1 => self.change_two().await,
            0..=9 => self.change(What::Credit).await,
            _ => self.check().await,
        }
    }

    /// A bucket gets so few units by hand that it is full again soon after the end.
    fn may_record(&mut self) -> bool {
        self.mode != Mode::CreditBucket || self.rng.chance(10)
    }

    async fn change(&mut self, what: What) {
        let keys = if what == What::Credit { NEVER_CREDITED } else { KEYS };
        let (key, units) = (self.rng.below(keys), 1 + self.rng.below(MOST_BACK));
        let (patience, policy, limiter) = (Patience::draw(&mut self.rng), self.mode.policy(), self.limiter());
        let name = key_name(self.mode, key);
        let changing = Changing::start(what, self.mode, key, self.place, units);
        let result = patience.wait(async move {
            match what {
                What::Credit => limiter.credit(name, &policy, units).await,
                _ => limiter.record(name, &policy, units).await.map(|()| units),
            }
        });
        if let Some(result) = result.await {
            seen(what, result.as_ref().ok().copied(), units);
            changing.answer(result.as_ref().copied());
        }
    }

    /// Two keys at once.
    async fn change_two(&mut self) {
        let what = if self.rng.chance(30) && self.may_record() { What::Record } else { What::Credit };
        let (key, other) = if what == What::Credit { (0, 1) } else { (self.rng.below(NEVER_CREDITED), NEVER_CREDITED) };
        let (units, of_other) = (1 + self.rng.below(MOST_BACK), 1 + self.rng.below(MOST_BACK));
        let (patience, policy, limiter) = (Patience::draw(&mut self.rng), self.mode.policy(), self.limiter());
        let check = both(&policy, (key_name(self.mode, key), units), (key_name(self.mode, other), of_other));
        let first = Changing::start(what, self.mode, key, self.place, units);
        let second = Changing::start(what, self.mode, other, self.place, of_other);
        let result = patience.wait(async move {
            match what {
                What::Credit => limiter.credit_all(check).await,
                _ => limiter.record_all(check).await.map(|()| vec![units, of_other]),
            }
        });
        let Some(result) = result.await else { return };
        for (changing, number) in [(first, 0), (second, 1)] {
            changing.answer(result.as_ref().map(|all| all.get(number).copied().unwrap_or(0)));
        }
        rare::taken("two-changes-by-hand");
    }
}

fn both(policy: &Policy, (key, units): (String, u64), (other, of_other): (String, u64)) -> Check {
    Check::new(key, policy, units).and(other, policy, of_other)
}

fn seen(what: What, done: Option<u64>, units: u64) {
    match (what, done) {
        (What::Record, Some(_)) => rare::taken("units-recorded"),
        (What::Credit, Some(done)) if done < units => rare::taken("credit-of-more-than-was-spent"),
        (What::Credit, Some(_)) => rare::taken("units-credited"),
        _ => {}
    }
}
