//! Callers: tasks that use the crate as a service does, and record what they see.

mod ask;
mod by_hand;
mod credit;
mod first_of;
mod hold;
mod impatient;
mod told;
mod upstream;
mod web;

use std::sync::PoisonError;

use tokio::task::JoinSet;
use tollgate::{Check, Decision, Error, Limiter};

use self::{ask::Ask, impatient::Patience};
use crate::keys::{KEYS, SECOND_KEYS, key_name, second_key_name};
use crate::plan::mode::{MAX_WAIT, Mode};
use crate::process::{SharedLimiter, SharedSite};
use crate::time::{ms, now};
use crate::{place::Place, random::Rng, service::Site};

/// How long callers think between two calls, at most, in milliseconds: some are eager, most give others room.
const THINKING: [u64; 4] = [12, 40, 40, 120];
/// The most units that callers want who take what there is.
const MOST_PARTS: u64 = 9;

/// A caller.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) limiter: SharedLimiter,
    pub(crate) site: SharedSite,
    pub(crate) mode: Mode,
    pub(crate) place: Place,
    pub(crate) rng: Rng,
    /// A key that no other caller has.
    pub(crate) key: u64,
    /// When it stops.
    pub(crate) until: u64,
}

impl Caller {
    /// Calls until the end of the load: one call after the other, or in bursts.
    pub(crate) async fn run(mut self) {
        if self.mode.tells_the_wait() && self.rng.chance(15) {
            return self.return_when_told().await;
        }
        let (in_bursts, thinking) = (self.rng.chance(20), self.rng.one_of(&THINKING));
        while now() < self.until {
            if self.mode.is_leased() && self.rng.chance(20) {
                self.rush().await;
            } else if in_bursts {
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

    /// Checks one key so often that the process takes blocks of it.
    async fn rush(&mut self) {
        let key = self.rng.below(KEYS);
        for _ in 0..2 + self.rng.below(6) {
            let mut burst = JoinSet::new();
            for _ in 0..10 + self.rng.below(30) {
                let mut one = self.clone();
                one.rng = Rng::new(self.rng.next());
                burst.spawn(async move { one.check_key(key).await });
            }
            while burst.join_next().await.is_some() {}
            tokio::time::sleep(ms(self.rng.below(20))).await;
        }
    }

    /// The limiter, for one call. Callers keep no handle while they wait.
    fn limiter(&self) -> Limiter {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The service, for one call.
    fn site(&self) -> Site {
        self.site.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn call(&mut self) {
        match self.mode {
            mode if mode.is_web() => self.request().await,
            mode if mode.is_by_hand() => self.by_hand().await,
            mode if mode.is_holds() => self.hold().await,
            mode if mode.is_credited() => self.spend_or_give_back().await,
            Mode::FirstOf => self.first_of().await,
            Mode::Told => self.tell().await,
            Mode::Upstream => self.call_upstream().await,
            _ => self.check().await,
        }
    }

    async fn check(&mut self) {
        let key = self.rng.below(KEYS);
        self.check_key(key).await;
    }

    async fn check_key(&mut self, key: u64) {
        let cost = self.draw_cost();
        let patience = match self.mode {
            Mode::Acquire => Patience::within(MAX_WAIT, &mut self.rng),
            _ => Patience::draw(&mut self.rng),
        };
        let second = second_key_name(self.mode, self.rng.below(SECOND_KEYS));
        let policy = self.mode.other_policy().filter(|_| self.rng.chance(50)).unwrap_or_else(|| self.mode.policy());
        let ask = Ask::start(self.mode, self.place, key, cost);
        let name = key_name(self.mode, key);
        let limiter = self.limiter();
        let result: Option<Result<Decision, Error>> = match (self.mode, self.mode.second_policy()) {
            (Mode::Acquire, _) => {
                let future = limiter.acquire(name, &policy, cost).within(ms(MAX_WAIT));
                drop(limiter);
                patience.wait(future).await
            }
            (mode, second_policy) => {
                let future = match second_policy {
                    Some(second_policy) => {
                        let check = Check::new(name, &policy, cost).and(second, &second_policy, cost);
                        limiter.check_all(check)
                    }
                    None if mode.is_parts() => limiter.check_up_to(name, &policy, cost),
                    None => limiter.check(name, &policy, cost),
                };
                drop(limiter);
                match mode {
                    Mode::LocalLog | Mode::Discovered => patience.wait(future.fail_local()).await,
                    _ => patience.wait(future).await,
                }
            }
        };
        if let Some(result) = result {
            ask.answer(result);
        }
    }

    fn draw_cost(&mut self) -> u64 {
        match self.mode {
            mode if mode.is_slots() || mode == Mode::Both => 1,
            Mode::PartsBucket | Mode::PartsWindow | Mode::PartsCounter => 1 + self.rng.below(MOST_PARTS),
            _ => 1 + self.rng.below(4),
        }
    }
}
