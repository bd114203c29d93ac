//! Limits that change: those that are replaced while the service runs, and those that a look-up finds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{ConfigError, Key, LiveLimits, Policy, limits::LimitsConfig, plans::Plans};

use crate::plan::mode::{LIMIT, Mode, WINDOW};
use crate::random::Rng;
use crate::time::{ms, now};

/// The smaller of two limits. The larger one is that of most policies.
pub(crate) const SMALL_LIMIT: u64 = 12;

/// Limits of a service that are replaced.
#[derive(Clone)]
pub(crate) struct Replaced(LiveLimits);

impl Replaced {
    pub(super) fn new() -> Self {
        Self(LiveLimits::new(config(LIMIT)))
    }

    pub(super) fn limits(&self) -> &LiveLimits {
        &self.0
    }

    /// From now on the limit is another one.
    pub(crate) fn replace(&self, limit: u64) {
        self.0.replace(config(limit)).expect("the limits are valid");
    }
}

fn config(limit: u64) -> LimitsConfig {
    let mode = Mode::WebLive;
    let text = format!(
        r#"{{
            "policies": {{"{mode}": {{"rate": "{limit}/s"}}}},
            "default": {{"policies": ["{mode}"], "on-store-failure": "closed"}},
            "routes": {{"/{mode}/1": {{"cost": 1}}, "/{mode}/3": {{"cost": 3}}, "/{mode}/exempt": {{"exempt": true}}}}
        }}"#
    );
    serde_json::from_str(&text).expect("the limits are valid")
}

/// How long a plan that was found is used, in milliseconds.
const TTL: u64 = 600;
/// How long a look-up may take, and takes at most.
const TIMEOUT: u64 = 100;
const SLOWEST: u64 = 140;

/// Plans of a service, which a source finds that is slow, and fails now and then.
#[derive(Clone)]
pub(crate) struct LookedUp {
    pub(super) plans: Plans,
    found: Found,
}

/// The latest answers of the source, by key.
type Found = Arc<Mutex<BTreeMap<String, u64>>>;

impl LookedUp {
    pub(super) fn new(seed: u64) -> Result<Self, ConfigError> {
        let (found, rng) = (Found::default(), Arc::new(Mutex::new(Rng::new(seed))));
        let answers = Arc::clone(&found);
        let small = Policy::new(Mode::WebPlans.name(), SMALL_LIMIT, ms(WINDOW))?;
        let source = move |key: Key| {
            let (takes, fails) = {
                let mut rng = locked(&rng);
                (rng.below(SLOWEST), rng.chance(25))
            };
            let (small, answers) = (small.clone(), Arc::clone(&answers));
            async move {
                tokio::time::sleep(ms(takes)).await;
                if fails {
                    return Err("the source is down");
                }
                let name = String::from_utf8_lossy(key.encoded()).into_owned();
                let is_small = is_small(&name);
                locked(&answers).insert(name, now());
                Ok(is_small.then_some(small))
            }
        };
        let plans = Plans::new(source, Mode::WebPlans.policy())?.with_ttl(ms(TTL)).with_timeout(ms(TIMEOUT));
        let plans = plans.with_failure_ttl(ms(50));
        Ok(Self { plans, found })
    }

    /// The limit of a key now, if it is certain.
    pub(crate) fn limit(&self, name: &str) -> Option<u64> {
        if !is_small(name) {
            return Some(LIMIT);
        }
        match locked(&self.found).get(name) {
            None => Some(LIMIT),
            Some(at) if at + 2 < now() => Some(SMALL_LIMIT),
            Some(_) => None,
        }
    }
}

/// Whether the source has a plan for a key.
fn is_small(name: &str) -> bool {
    !name.ends_with('1')
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
