//! Callers of holds: they hold, work, and end the hold in one of several ways.

use tollgate::limiter::{Hold, HoldAnswer};
use tollgate::store::SettleAnswer;

use super::Caller;
use super::ask::{Ask, Work};
use super::impatient::{HURRY, Patience};
use crate::keys::{KEYS, key_name};
use crate::{plan::mode::MAX_WAIT, time::ms};

impl Caller {
    pub(super) async fn hold(&mut self) {
        let (key, cost) = (self.rng.below(KEYS), self.draw_cost());
        let (name, policy) = (key_name(self.mode, key), self.mode.policy());
        let longest = if self.mode.waits() { MAX_WAIT } else { HURRY };
        let patience = Patience::within(longest, &mut self.rng);
        let ask = Ask::start(self.mode, self.place, key, cost);
        let answer = match self.mode.waits() {
            true => {
                let future = self.limiter().acquire_hold(name, &policy, cost).within(ms(MAX_WAIT));
                patience.wait(future).await
            }
            false => {
                let future = self.limiter().hold(name, &policy, cost);
                let future = if self.mode.is_local() { future.fail_local() } else { future };
                patience.wait(future).await
            }
        };
        match answer {
            None => {}
            Some(Ok(HoldAnswer::Open(hold))) => self.work(ask.hold(hold.decision()), hold, cost).await,
            Some(Ok(held)) => ask.deny(held.decision()),
            Some(Err(error)) => ask.fail(&error),
        }
    }

    /// Short work, and now and then work that is longer than the time-to-live.
    async fn work(&mut self, mut work: Work, hold: Hold, cost: u64) {
        let longest = if self.rng.chance(10) { 3_000 } else { 60 };
        tokio::time::sleep(ms(self.rng.below(longest))).await;
        let charged = match self.mode.is_slots() {
            true => 0,
            false => self.rng.below(cost + 3),
        };
        work.ended(charged);
        let is_settled = |result: &Result<SettleAnswer, _>| matches!(result, Ok(SettleAnswer::Settled));
        match self.rng.below(3) {
            0 => {
                // Without a word about the costs, the units that were held are charged.
                drop(hold);
                work.settled(if self.mode.is_slots() { 0 } else { cost }, false);
            }
            1 => {
                let result = hold.settle(charged).await;
                work.settled(charged, is_settled(&result));
            }
            _ => {
                let result = hold.release().await;
                work.settled(0, is_settled(&result));
            }
        }
    }
}
