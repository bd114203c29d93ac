//! Callers: tasks that use the crate as a service does, and record what they see.

mod ask;
mod hold;
mod impatient;

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Check, Decision, Error, Limiter};

use self::{ask::Ask, impatient::Patience};
use crate::{
    plan::mode::Mode,
    random::Rng,
    time::{ms, now},
};

/// The number of keys of a mode.
pub(crate) const KEYS: u64 = 3;
/// The number of second keys of a mode.
pub(crate) const SECOND_KEYS: u64 = 9;
/// How long callers think between two calls, at most, in milliseconds: some are eager, most give others room.
const THINKING: [u64; 4] = [12, 40, 40, 120];
/// How long callers of `acquire` wait.
const MAX_WAIT: Duration = Duration::from_millis(300);

pub(crate) fn key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-{key}")
}

pub(crate) fn second_key_name(mode: Mode, key: u64) -> String {
    format!("{mode}-second-{key}")
}

/// A caller.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) limiter: Limiter,
    pub(crate) mode: Mode,
    pub(crate) process: usize,
    pub(crate) rng: Rng,
    /// When it stops.
    pub(crate) until: u64,
}

impl Caller {
    /// Calls until the end of the load: one call after the other, or in bursts.
    pub(crate) async fn run(mut self) {
        let (in_bursts, thinking) = (self.rng.chance(20), self.rng.one_of(&THINKING));
        while now() < self.until {
            if in_bursts {
                let mut burst = JoinSet::new();
                for _ in 0..=self.rng.below(15) {
                    let mut one = self.clone();
                    one.rng = Rng::new(self.rng.next());
                    burst.spawn(async move { one.call().await });
                }
                while burst.join_next().await.is_some() {}
                tokio::time::sleep(ms(20 + self.rng.below(200))).await;
            } else {
                self.call().await;
                tokio::time::sleep(ms(self.rng.below(thinking))).await;
            }
        }
    }

    async fn call(&mut self) {
        if self.mode.is_holds() { self.hold().await } else { self.check().await }
    }

    async fn check(&mut self) {
        let (key, cost) = (self.rng.below(KEYS), self.draw_cost());
        let patience = Patience::draw(&mut self.rng);
        let second = second_key_name(self.mode, self.rng.below(SECOND_KEYS));
        let policy = self.mode.other_policy().filter(|_| self.rng.chance(50)).unwrap_or_else(|| self.mode.policy());
        let ask = Ask::start(self.mode, self.process, key, cost);
        let name = key_name(self.mode, key);
        let result: Option<Result<Decision, Error>> = match (self.mode, self.mode.second_policy()) {
            (Mode::Acquire, _) => patience.wait(self.limiter.acquire(name, &policy, cost).within(MAX_WAIT)).await,
            (Mode::LocalLog, _) => patience.wait(self.limiter.check(name, &policy, cost).fail_local()).await,
            (_, Some(second_policy)) => {
                let check = Check::new(name, &policy, cost).and(second, &second_policy, cost);
                patience.wait(self.limiter.check_all(check.expect("the keys differ"))).await
            }
            _ => patience.wait(self.limiter.check(name, &policy, cost)).await,
        };
        if let Some(result) = result {
            ask.answer(result);
        }
    }

    fn draw_cost(&mut self) -> u32 {
        match self.mode.is_slots() || self.mode == Mode::Both {
            true => 1,
            false => 1 + u32::try_from(self.rng.below(4)).unwrap_or(0),
        }
    }
}
