//! Callers whose calls have a policy each, so that nothing else is charged to its count. Redis keys show its name.

use tollgate::Policy;

use super::{Caller, ask::Ask, impatient::Patience};
use crate::keys::{TOLD_KEYS, key_name, next_told};
use crate::plan::mode::{LIMIT, WINDOW};
use crate::time::ms;

impl Caller {
    pub(super) async fn tell(&mut self) {
        let (call, cost) = (next_told(), self.draw_cost());
        let patience = Patience::draw(&mut self.rng);
        let policy = Policy::new(format!("{}-{call}", self.mode), LIMIT, ms(WINDOW)).expect("the policy is valid");
        let (name, limiter) = (key_name(self.mode, call % TOLD_KEYS), self.limiter());
        let ask = Ask::start(self.mode, self.place, call, cost);
        let future = match self.rng.chance(30) {
            true => limiter.check_up_to(name, &policy, cost),
            false => limiter.check(name, &policy, cost),
        };
        drop(limiter);
        if let Some(result) = patience.wait(future).await {
            ask.answer(result);
        }
    }
}
