//! Callers who ban keys and reset counts by hand, beside those who spend units.

use super::{Caller, ask::Ask, impatient::Patience};
use crate::changes::{Changing, What};
use crate::keys::{KEYS, key_name};
use crate::time::{ms, now};
use crate::{plan::mode::Mode, rare};

/// The longest ban, in milliseconds.
const LONGEST_BAN: u64 = 500;
/// Checks in every such millisecond are those that never wait.
const TRIES_EVERY: u64 = 3;

impl Caller {
    pub(super) async fn by_hand(&mut self) {
        let what = match self.rng.below(40) {
            0 => What::Ban,
            1 => What::Unban,
            2 => What::Reset,
            _ if self.mode == Mode::HandHolds && self.rng.chance(80) => return self.hold().await,
            _ if self.mode == Mode::HandMemory => return self.check_memory().await,
            _ => return self.check().await,
        };
        self.change_standing(what).await;
    }

    /// The first key of those that are counted here: memory counts for each life of a process.
    fn first_key(&self) -> u64 {
        if self.mode.is_memory() { KEYS * self.site().life } else { 0 }
    }

    async fn change_standing(&mut self, what: What) {
        let key = self.first_key() + self.rng.below(KEYS);
        let lasts = if what == What::Ban { 50 + self.rng.below(LONGEST_BAN - 50) } else { 0 };
        let (patience, policy) = (Patience::draw(&mut self.rng), self.mode.policy());
        let limiter = if self.mode.is_memory() { self.site().memory } else { self.limiter() };
        let name = key_name(self.mode, key);
        let changing = Changing::start(what, self.mode, key, self.place, lasts);
        let result = patience.wait(async move {
            match what {
                What::Ban => limiter.ban(name, &policy, ms(lasts)).await.map(|()| lasts),
                What::Unban => limiter.unban(name, &policy).await.map(u64::from),
                _ => limiter.reset(name, &policy).await.map(u64::from),
            }
        });
        if let Some(result) = result.await {
            match (what, &result) {
                (What::Ban, Ok(_)) => rare::taken("ban-by-hand"),
                (What::Unban, Ok(1)) => rare::taken("ban-ended-by-hand"),
                (What::Reset, Ok(1)) => rare::taken("count-reset"),
                _ => {}
            }
            changing.answer(result.as_ref().copied());
        }
    }

    async fn check_memory(&mut self) {
        let (key, cost) = (self.first_key() + self.rng.below(KEYS), self.draw_cost());
        let patience = Patience::draw(&mut self.rng);
        let ask = Ask::start(self.mode, self.place, key, cost);
        let (memory, name, policy) = (self.site().memory, key_name(self.mode, key), self.mode.policy());
        if now().is_multiple_of(TRIES_EVERY) {
            return ask.answer(memory.try_check(name, &policy, cost));
        }
        let future = memory.check(name, &policy, cost);
        if let Some(result) = patience.wait(future).await {
            ask.answer(result);
        }
    }
}
