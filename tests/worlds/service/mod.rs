//! The service of a process: an axum `Router` under layers of the crate, as users write it.

mod body;
mod handler;
mod limits;
mod observer;
pub(crate) mod script;
pub(crate) mod seen;
mod settle;
pub(crate) mod visit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::{Router, routing::get};
use http::request;
use tollgate::{ConfigError, HeaderKey, Key, Limiter, MemoryStore, RateLimitLayer, Route};

use self::handler::handle;
use self::limits::{LookedUp, Replaced};
pub(crate) use self::{limits::SMALL_LIMIT, observer::Onlooker};
use crate::plan::mode::{LIMIT, MAX_WAIT, Mode};
use crate::{plan::Plan, time::ms};

/// The header that names the client.
pub(crate) const CLIENT: &str = "x-client";
/// The header that a closure takes the cost from.
pub(crate) const COST: &str = "x-cost";
/// The end of paths without a limit.
pub(crate) const EXEMPT: &str = "/exempt";
/// Routes of each mode with a fixed cost.
pub(crate) const FIXED: [u64; 2] = [1, 3];

/// What callers have of the service of a process.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) router: Router,
    /// The limiter of the modes that have their counts in the memory of the process.
    pub(crate) memory: Limiter,
    pub(crate) replaced: Replaced,
    pub(crate) looked_up: LookedUp,
    /// The limit in force of those that are replaced.
    limit: Arc<AtomicU64>,
    /// The modes that the router serves.
    modes: Vec<Mode>,
    /// Whether the world has no faults.
    pub(crate) is_calm: bool,
    /// A number of this start of this process, which memory does not outlive.
    pub(crate) life: u64,
}

impl Site {
    pub(crate) fn new(plan: &Plan, limiter: &Limiter, life: u64) -> Self {
        let memory = Limiter::new(MemoryStore::new()).without_notices();
        let memory = match Onlooker::of(plan.watch) {
            Some(onlooker) => memory.with_observer(onlooker),
            None => memory,
        };
        let (replaced, limit) = (Replaced::new(), Arc::new(AtomicU64::new(LIMIT)));
        let looked_up = LookedUp::new(plan.seed ^ life).expect("the plans are valid");
        let modes = plan.modes.iter().copied().filter(|mode| mode.is_web()).collect();
        let (router, is_calm) = (Router::new(), plan.faults.is_empty());
        let mut site = Self { router, memory, replaced, looked_up, limit, modes, is_calm, life };
        site.serve(limiter);
        site
    }

    /// From now on, requests are judged by this limiter.
    pub(crate) fn serve(&mut self, limiter: &Limiter) {
        self.router = self.router(&self.modes, limiter).expect("the layers of modes are valid");
    }

    /// The limit of a mode for a client, if it is certain.
    pub(crate) fn limit(&self, mode: Mode, name: &str) -> Option<u64> {
        match mode {
            Mode::WebLive => Some(self.limit.load(Ordering::Relaxed)),
            Mode::WebPlans => self.looked_up.limit(name),
            _ => Some(mode.policy().limit()),
        }
    }

    /// From now on, the limit that is replaced is another one.
    pub(crate) fn replace(&self, limit: u64) {
        self.replaced.replace(limit);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// For each store a layer without settlement, a layer with settlement, and the layers with live limits.
    fn router(&self, modes: &[Mode], limiter: &Limiter) -> Result<Router, ConfigError> {
        let mut router = Router::new();
        for (limiter, is_memory) in [(limiter, false), (&self.memory, true)] {
            let here = |mode: &Mode, settles: bool| mode.is_memory() == is_memory && mode.is_settled() == settles;
            let plain =
                |mode: &Mode| here(mode, false) && !matches!(mode, Mode::WebLive | Mode::WebPlans | Mode::WebWaits);
            let plain: Vec<Mode> = modes.iter().copied().filter(plain).collect();
            if let Some(layer) = layer(&plain, limiter)? {
                router = router.merge(routes(&plain).layer(layer));
            }
            let settled: Vec<Mode> = modes.iter().copied().filter(|mode| here(mode, true)).collect();
            if let Some(layer) = layer(&settled, limiter)? {
                router = router.merge(routes(&settled).layer(layer.with_settlement(settle::read)));
            }
        }
        if let Some(layer) = layer(&[Mode::WebWaits], limiter)?.filter(|_| modes.contains(&Mode::WebWaits)) {
            router = router.merge(routes(&[Mode::WebWaits]).layer(layer.wait_up_to(ms(MAX_WAIT)).validated()?));
        }
        if modes.contains(&Mode::WebLive) {
            let layer = self.replaced.limits().layer(limiter.clone(), HeaderKey::new(CLIENT)?)?;
            let layer = layer.with_cost_fn(cost_of).with_decision_in_response(true);
            router = router.merge(routes(&[Mode::WebLive]).layer(layer));
        }
        if modes.contains(&Mode::WebPlans) {
            let layer = RateLimitLayer::new(limiter.clone(), self.looked_up.plans.clone(), HeaderKey::new(CLIENT)?);
            let layer = with_routes(layer, Mode::WebPlans, |route, _| route.fail_closed());
            router = router.merge(routes(&[Mode::WebPlans]).layer(layer.with_decision_in_response(true)));
        }
        Ok(router)
    }
}

/// The key of a client.
pub(crate) fn key_of(name: &str) -> Key {
    HeaderKey::new(CLIENT).expect("the name is valid").key_of(name)
}

/// A layer with routes of each mode, and a failure policy for each of them.
fn layer(modes: &[Mode], limiter: &Limiter) -> Result<Option<RateLimitLayer<HeaderKey>>, ConfigError> {
    let Some(first) = modes.first() else { return Ok(None) };
    let layer = RateLimitLayer::new(limiter.clone(), first.policy(), HeaderKey::new(CLIENT)?);
    let layer = modes.iter().fold(layer, |layer, mode| {
        with_routes(layer, *mode, |route, mode| match mode {
            Mode::WebOpen => route.policies(mode.policy()).fail_open(),
            Mode::WebLocal | Mode::WebOwed => route.policies(mode.policy()).fail_local(),
            _ => route.policies(mode.policy()).fail_closed(),
        })
    });
    Ok(Some(layer.with_decision_in_response(true).validated()?))
}

type Layer = RateLimitLayer<HeaderKey>;

/// The routes of a mode: some with a fixed cost, one with a cost that a closure computes, and one without a limit.
fn with_routes(layer: Layer, mode: Mode, complete: fn(Route, Mode) -> Route) -> Layer {
    let layer = layer.route(&format!("/{mode}{EXEMPT}"), Route::exempt());
    if mode.is_slots() {
        return layer.route(&format!("/{mode}/any"), complete(Route::new(), mode));
    }
    let layer = layer.route(&format!("/{mode}/any"), complete(Route::new().cost_fn(cost_of), mode));
    FIXED
        .into_iter()
        .fold(layer, |layer, cost| layer.route(&format!("/{mode}/{cost}"), complete(Route::new().cost(cost), mode)))
}

fn routes(modes: &[Mode]) -> Router {
    modes.iter().fold(Router::new(), |router, mode| {
        let fixed = FIXED.into_iter().filter(|_| !mode.is_slots()).map(|cost| format!("/{mode}/{cost}"));
        let paths = fixed.chain([format!("/{mode}/any"), format!("/{mode}{EXEMPT}")]);
        paths.fold(router, |router, path| router.route(&path, get(handle)))
    })
}

fn cost_of(parts: &request::Parts) -> u64 {
    parts.headers.get(COST).and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1)
}
