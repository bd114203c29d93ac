//! Callers who pay from the first of two policies that has room.

use tollgate::Check;

use super::{Caller, ask::Ask, impatient::Patience};
use crate::keys::{ALTERNATIVE, KEYS, key_name};
use crate::rare;

impl Caller {
    pub(super) async fn first_of(&mut self) {
        let (key, cost) = (self.rng.below(KEYS), self.draw_cost());
        let patience = Patience::draw(&mut self.rng);
        let policies = [Some(self.mode.policy()), self.mode.alternative()];
        let check = Check::first_of(key_name(self.mode, key), policies.iter().flatten(), cost);
        let mut ask = Ask::start(self.mode, self.place, key, cost);
        let future = self.limiter().check_all(check);
        let Some(result) = patience.wait(future).await else { return };
        let charged = result.as_ref().ok().filter(|decision| decision.is_allowed());
        let charged = charged.and_then(|decision| decision.policies().first());
        if charged.is_some_and(|charged| charged.policy.name() != self.mode.name()) {
            ask.concerns(ALTERNATIVE + key);
            rare::taken("second-of-two");
        }
        ask.answer(result);
    }
}
