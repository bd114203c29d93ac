//! A request in progress, which is recorded when its client, its handler and its work have all ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use http::Response;
use tollgate::{Decision, decision::Source};

use super::script::{Panics, Script, Settles};
use super::seen::Seen;
use crate::history::{self, Call, Outcome, Web, may_last_until};
use crate::{place::Place, plan::mode::Mode, process::thread, time::now};

pub(crate) struct Visit {
    script: Script,
    state: Mutex<State>,
}

struct State {
    call: Call,
    web: Web,
}

impl Visit {
    pub(crate) fn start(
        mode: Mode,
        place: Place,
        key: u64,
        cost: u64,
        limit: Option<u64>,
        script: Script,
    ) -> Arc<Self> {
        let (asked, outcome) = (now(), Outcome::Gone);
        // Nothing is free because a client says so: at least a unit is held.
        let cost = if script.is_exempt { 0 } else { cost.max(mode.is_settled().into()) };
        let call = Call {
            mode,
            key,
            place,
            cost,
            asked,
            answered: asked,
            charged_by: asked,
            most: cost,
            by_share: false,
            worked: None,
            outcome,
            web: None,
        };
        let web = Web { is_exempt: script.is_exempt, limit, ..Web::default() };
        Arc::new(Self { script, state: Mutex::new(State { call, web }) })
    }

    pub(super) fn script(&self) -> Script {
        self.script
    }

    /// The handler has been called, with this decision.
    pub(super) fn reach(&self, decision: Option<&Decision>) {
        let mut state = self.state();
        state.web.reached = Some(now());
        state.web.is_judged = decision.is_some_and(|decision| decision.source() != Source::Open);
        state.web.is_local = decision.is_some_and(|decision| decision.source() == Source::Local);
        state.web.is_allowed = decision.is_none_or(Decision::is_allowed);
    }

    /// Notes the units of the bill.
    pub(super) fn sets(&self, units: u64) {
        self.state().web.bill = Some(units);
    }

    pub(super) fn adds(&self, units: u64) {
        let mut state = self.state();
        state.web.bill = Some(state.web.bill.unwrap_or(0) + units);
    }

    /// The client has the head of the response.
    pub(crate) fn answer(&self, response: &Response<Body>) {
        self.state().web.seen = Some(Seen::read(now(), response));
    }

    /// The exact wait of a denial, in milliseconds. `None` if the request was not denied.
    pub(crate) fn wait(&self) -> Option<u64> {
        self.state().web.seen.as_ref().filter(|seen| seen.status == 429)?.exact_wait
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units that this request is charged in the end, if a store or a share has admitted it.
    fn charged(&self, call: &Call, web: &Web) -> u64 {
        if !call.mode.is_settled() {
            return if call.mode.is_slots() { 0 } else { call.cost };
        }
        let by_the_bill = web.bill.unwrap_or(call.cost);
        match self.script.settles {
            // What the handler wants is not asked without a response.
            _ if web.seen.is_none() || self.script.panics == Panics::Settling => by_the_bill,
            Settles::AtEnd => by_the_bill,
            Settles::Charge(units) => units,
            Settles::Keep => call.cost,
            Settles::Release => 0,
        }
    }
}

/// The outcome of a request that no layer and no observer has reported.
fn without_verdict(what: &str) -> Outcome {
    Outcome::Failed { what: what.to_owned(), may_have_charged: true }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let (mut call, web) = {
            let state = self.state();
            (state.call.clone(), state.web.clone())
        };
        let status = web.seen.as_ref().map(|seen| seen.status);
        call.answered = web.reached.or_else(|| web.seen.as_ref().map(|seen| seen.at)).unwrap_or_else(now);
        call.charged_by = may_last_until(call.mode);
        call.outcome = match (web.reached, status) {
            (Some(_), _) if web.is_exempt => Outcome::Admitted { charged: 0 },
            (Some(reached), _) if web.is_judged => {
                let charged = self.charged(&call, &web);
                call.by_share = web.is_local;
                call.worked = call.mode.is_slots().then(|| (reached, now()));
                call.charged_by = if call.mode.is_holds() { call.charged_by } else { reached };
                // A hold that is not settled in time is charged in full.
                call.most = charged.max(call.cost);
                Outcome::Admitted { charged: charged.min(call.cost) }
            }
            (Some(_), _) => without_verdict("passed"),
            (None, Some(429)) => {
                let wait = web.seen.as_ref().and_then(|seen| seen.exact_wait);
                Outcome::Denied { retry_after: wait }
            }
            (None, Some(status)) => without_verdict(&format!("refused with {status}")),
            (None, None) => Outcome::Gone,
        };
        let is_held = call.mode.is_settled() && web.is_judged;
        let settled = is_held.then(|| self.charged(&call, &web));
        call.web = Some(Web { settled, ended: now(), is_killed: thread::is_killed(), ..web });
        history::record(call);
    }
}
