//! Plans that an asynchronous source looks up.

mod bounds;
mod failures;
mod lifetimes;
mod made_up_keys;
mod mistakes;
mod named;
mod reports;
mod runtimes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::observe::{Event, Observer};
use tollgate::plans::{PlanSource, Plans};
use tollgate::{GlobalKey, Key, Limiter, Policy, RateLimitLayer, clock::TokioClock};

use crate::support::{app::limiter, per_minute};

const SECOND: Duration = Duration::from_secs(1);
/// The limit of the default plan.
const DEFAULT: u64 = 3;

/// How a source answers.
#[derive(Clone, Debug)]
enum Answer {
    Policies(Vec<Policy>),
    NoPlan,
    Error,
    Panic,
    Never,
    After(Duration, u64),
}

/// The policy `p` of `limit` units a minute, as the answer.
fn plan(limit: u64) -> Answer {
    Answer::Policies(vec![per_minute("p", limit)])
}

/// A source that answers as the test says, and counts its look-ups.
#[derive(Clone, Debug)]
struct Source {
    answer: Arc<Mutex<Answer>>,
    asked: Arc<AtomicUsize>,
}

impl Source {
    fn new(answer: Answer) -> Self {
        Self { answer: Arc::new(Mutex::new(answer)), asked: Arc::default() }
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Plans of this source that follow tokio's paused time. The default plan has a limit of [`DEFAULT`].
    fn plans(&self) -> Plans {
        quiet(Plans::new(self.clone(), per_minute("p", DEFAULT)).unwrap().with_clock(TokioClock::new()))
    }
}

/// Plans that report to a limiter, because a layer of it has them.
fn reporting_to(limiter: Limiter, plans: Plans) -> Plans {
    drop(RateLimitLayer::new(limiter, plans.clone(), GlobalKey).validated().unwrap());
    plans
}

/// Plans that write no lines.
fn quiet(plans: Plans) -> Plans {
    reporting_to(limiter().without_notices(), plans)
}

/// Plans that report to `observer` alone.
fn observed(plans: Plans, observer: impl Observer) -> Plans {
    reporting_to(limiter().without_notices().with_observer(observer), plans)
}

impl PlanSource for Source {
    type Plan = Option<Vec<Policy>>;
    type Error = &'static str;

    async fn plan(&self, _: &Key) -> Result<Option<Vec<Policy>>, &'static str> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().unwrap().clone();
        match answer {
            Answer::Policies(policies) => Ok(Some(policies)),
            Answer::NoPlan => Ok(None),
            Answer::Error => Err("the database is away"),
            Answer::Panic => panic!("a bug in the source"),
            Answer::Never => std::future::pending().await,
            Answer::After(time, limit) => {
                tokio::time::sleep(time).await;
                Ok(Some(vec![per_minute("p", limit)]))
            }
        }
    }
}

/// The limit that applies to `key` now.
fn limit(plans: &Plans, key: &str) -> u64 {
    plans.get(key)[0].limit()
}

/// Lets the tasks run that can run without waiting.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// An observer that records outcomes of look-ups, and causes of fallbacks.
#[derive(Clone, Debug, Default)]
struct Events {
    lookups: Arc<Mutex<Vec<&'static str>>>,
    fallbacks: Arc<Mutex<Vec<(&'static str, bool)>>>,
}

impl Events {
    fn lookups(&self) -> Vec<&'static str> {
        self.lookups.lock().unwrap().clone()
    }

    /// The causes, and whether an old plan applied.
    fn fallbacks(&self) -> Vec<(&'static str, bool)> {
        self.fallbacks.lock().unwrap().clone()
    }
}

impl Observer for Events {
    fn on_event(&self, event: &Event<'_>) {
        match event.name() {
            "plan_lookup" => self.lookups.lock().unwrap().push(event.outcome()),
            "plan_fallback" => {
                let text = event.to_string();
                let is_stale = text.contains("so the last plan of its key applies: ");
                assert!(is_stale || text.contains("so the default plan applies: "), "{text}");
                self.fallbacks.lock().unwrap().push((event.outcome(), is_stale));
            }
            _ => {}
        }
    }
}
