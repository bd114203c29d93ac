//! Plans that are policies of live limits: the source returns the name.

use std::sync::{Arc, Mutex};

use http::request::Parts;
use tollgate::plans::{Plan, Plans};
use tollgate::{ConfigError, Decision, GlobalKey, Key, LiveLimits, Policy, RateLimitLayer, limits::LimitsConfig};
use tracing::Level;

use super::{limit, observed, quiet, settle};
use crate::support::app::{app, limiter};
use crate::support::{http::get, log::Log, recorder::assert_warnings};
use crate::support::{per_minute, says};
use crate::{limits::warnings::Warned, live::files::limits};

/// Limits with the plans `free`, and `paid` of this rate.
fn with_paid(rate: u64) -> LimitsConfig {
    limits(&format!(
        "policies.free.rate = '3/min'\npolicies.paid = {{ rate = '{rate}/min', in-code = true }}\n\
         default.policies = ['free']\nroutes.'/search'.cost = 2"
    ))
}

/// A source whose answer the test changes: the name in the database.
#[derive(Clone)]
struct Database(Arc<Mutex<Option<String>>>);

impl Database {
    fn new(plan: &str) -> Self {
        Self(Arc::new(Mutex::new(Some(plan.to_owned()))))
    }

    fn plans(&self, live: &LiveLimits) -> Plans {
        let Self(plan) = self.clone();
        let source = move |_: Key| {
            let plan = plan.lock().unwrap().clone();
            async move { Ok::<_, &str>(plan) }
        };
        quiet(Plans::of_limits(live, source, "free").unwrap())
    }
}

/// The first request starts the look-up, and gets the default plan.
async fn look_up(plans: &Plans, key: &str) {
    let _ = plans.get(key);
    settle().await;
}

#[tokio::test]
async fn a_plan_that_is_a_name_follows_the_limits_without_another_look_up() {
    let live = LiveLimits::new(with_paid(100));
    let plans = Database::new("Paid").plans(&live);
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_policies(plans.clone());
    let app = app(layer);
    let policy = async |path: &str| get(&app, path).await.header("ratelimit-policy").unwrap();
    assert_eq!(policy("/").await, r#""free";q=3;w=60"#);
    settle().await;
    assert_eq!(policy("/").await, r#""paid";q=100;w=60"#);
    live.replace(with_paid(200)).unwrap();
    // The cost of the route is that of the file, and what was spent under the old limit counts.
    let reply = get(&app, "/search").await;
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""paid";q=200;w=60"#));
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""paid";r=197;t=60"#));
}

/// Limits with the plan `free`, half of which `/search` costs.
fn with_free(limit: u64) -> LimitsConfig {
    limits(&format!(
        "policies.free.rate = '{limit}/min'\ndefault.policies = ['free']\nroutes.'/search'.cost = {}",
        limit / 2
    ))
}

/// The cost of one version may be above the limit of another one, and 400 tells the client not to come back.
#[tokio::test]
async fn a_request_finds_its_plan_in_the_limits_that_its_cost_comes_from() {
    for has_one_count in [false, true] {
        let sets = [100, 10].map(with_free);
        let live = LiveLimits::new(sets[0].clone());
        let plans = Database::new("free").plans(&live);
        let plans = if has_one_count { plans.with_one_count("free") } else { plans };
        // The limits are replaced when the request has read them. Each request has a key of its own.
        let replaced = live.clone();
        let key = move |_: &Parts| {
            let version = replaced.version();
            replaced.replace(sets[version as usize % 2].clone()).unwrap();
            Key::from(version)
        };
        let app = app(live.layer(limiter(), key).unwrap().with_policies(plans));
        for limit in [100, 10, 100] {
            let reply = get(&app, "/search").await;
            assert_eq!(reply.status, 200);
            assert_eq!(reply.header("ratelimit-policy"), Some(format!(r#""free";q={limit};w=60"#)));
            assert_eq!(reply.header("ratelimit"), Some(format!(r#""free";r={};t=60"#, limit / 2)));
        }
        assert_eq!(live.version(), 4);
    }
}

#[tokio::test]
async fn plans_of_other_limits_than_those_of_the_layer_follow_their_own() {
    let (live, other) = (LiveLimits::new(with_free(100)), LiveLimits::new(with_free(10)));
    let plans = Database::new("free").plans(&other);
    let app = app(live.layer(limiter(), GlobalKey).unwrap().with_policies(plans));
    for limit in [20, 30] {
        other.replace(with_free(limit)).unwrap();
        let policy = get(&app, "/").await.header("ratelimit-policy");
        assert_eq!(policy, Some(format!(r#""free";q={limit};w=60"#)));
    }
}

#[tokio::test]
async fn law_13_an_unknown_plan_gets_the_default_plan_and_is_reported_once_for_each_name() {
    let live = LiveLimits::new(with_paid(100));
    let (database, warned) = (Database::new("gold"), Warned::default());
    let plans = observed(database.plans(&live), warned.clone());
    for key in ["17", "18"] {
        look_up(&plans, key).await;
        assert_eq!((limit(&plans, key), limit(&plans, key)), (3, 3));
    }
    assert_warnings(&warned.take(), &[("unknown_plan", "no policy \"gold\"")]);
    *database.0.lock().unwrap() = Some("silver".to_owned());
    look_up(&plans, "19").await;
    assert_eq!(limit(&plans, "19"), 3);
    assert_warnings(&warned.take(), &[("unknown_plan", "no policy \"silver\"")]);
    // The file gets the plan. No look-up is needed.
    let gold = "policies.free.rate = '3/min'\npolicies.gold.rate = '500/min'\ndefault.policies = ['free', 'gold']";
    live.replace(limits(gold)).unwrap();
    assert_eq!(limit(&plans, "17"), 500);
}

/// The request uses the limits of before, which lack the plan.
#[tokio::test]
async fn law_13_a_plan_that_comes_into_force_while_a_request_runs_is_not_reported_as_unknown() {
    let (live, warned) = (LiveLimits::new(with_free(100)), Warned::default());
    let plans = Database::new("free").plans(&live);
    let (replaced, inserted) = (live.clone(), plans.clone());
    let key = move |_: &Parts| {
        replaced.replace(with_paid(200)).unwrap();
        inserted.insert("account", "paid").unwrap();
        Key::from("account")
    };
    let limiter = limiter().with_observer(warned.clone());
    let app = app(live.layer(limiter, key).unwrap().with_policies(plans));
    let policy = get(&app, "/").await.header("ratelimit-policy");
    assert_eq!(policy.as_deref(), Some(r#""free";q=100;w=60"#));
    assert_warnings(&warned.take(), &[]);
}

/// A source that makes a name up for each key must not fill the memory.
#[tokio::test]
async fn of_ever_more_unknown_plans_the_first_thousand_are_reported() {
    let live = LiveLimits::new(with_paid(100));
    let source = |key: Key| async move { Ok::<_, &str>(String::from_utf8_lossy(key.encoded()).into_owned()) };
    let warned = Warned::default();
    let plans = observed(Plans::of_limits(&live, source, "free").unwrap(), warned.clone());
    for number in 0..1_010 {
        let key = format!("gold-{number}");
        look_up(&plans, &key).await;
        assert_eq!(limit(&plans, &key), 3);
    }
    assert_eq!(warned.take().len(), 1_000);
}

#[tokio::test]
async fn an_unknown_plan_is_a_line_of_the_log() {
    let (log, _guard) = Log::start(Level::INFO);
    let live = LiveLimits::new(with_paid(100));
    let plans = Plans::of_limits(&live, |_: Key| async { Ok::<_, &str>("gold\nforged") }, "free").unwrap();
    look_up(&plans, "17").await;
    assert_eq!(limit(&plans, "17"), 3);
    let lines = log.take();
    let expected = r#"WARN tollgate::setup: the limits have no policy "gold\nforged", which the source of plans"#;
    assert!(matches!(&lines[..], [line] if line.starts_with(expected)), "{lines:?}");
}

#[test]
fn limits_always_have_the_default_plan() {
    let live = LiveLimits::new(with_paid(100));
    let source = |_: Key| async { Ok::<_, &str>("paid") };
    let error = Plans::of_limits(&live, source, "basic").unwrap_err();
    says(&error, r#"the limits have no policy "basic", which is a plan of `Plans::of_limits`; "#);
    says(&error, r#"write one of "free", "paid""#);
    let plans = Plans::of_limits(&live, source, "free").unwrap().with_one_count("plan");
    let without = || limits("policies.paid.rate = '9/min'\ndefault.policies = ['paid']");
    says(live.replace(without()).unwrap_err(), r#"the limits have no policy "free", which is a plan"#);
    assert_eq!(live.version(), 1);
    drop(plans);
    live.replace(without()).unwrap();
}

/// Otherwise an account that changes its plan, or that is new to the process, has both limits in one window.
#[tokio::test]
async fn plans_with_one_count_share_what_was_spent() {
    let live = LiveLimits::new(with_paid(100));
    let plans = Database::new("paid").plans(&live).with_one_count("plan");
    let app = app(live.layer(limiter(), GlobalKey).unwrap().with_policies(plans));
    let fields = async || {
        let reply = get(&app, "/").await;
        (reply.header("ratelimit-policy").unwrap(), reply.header("ratelimit").unwrap())
    };
    assert_eq!(fields().await, (r#""plan";q=3;w=60"#.to_owned(), r#""plan";r=2;t=60"#.to_owned()));
    settle().await;
    assert_eq!(fields().await, (r#""plan";q=100;w=60"#.to_owned(), r#""plan";r=98;t=60"#.to_owned()));
    live.replace(with_paid(50)).unwrap();
    assert_eq!(fields().await, (r#""plan";q=50;w=60"#.to_owned(), r#""plan";r=47;t=60"#.to_owned()));
}

/// The policy and the cost of two requests: under the default plan, and under the one that the look-up finds.
async fn costs(layer: RateLimitLayer<GlobalKey>) -> [(String, u64); 2] {
    let app = app(layer.with_decision_in_response(true));
    let cost = async || {
        let reply = get(&app, "/").await;
        let decision: &Decision = reply.extensions.get().unwrap();
        let charged = &decision.policies()[0];
        (charged.policy.name().to_owned(), charged.cost)
    };
    let first = cost().await;
    settle().await;
    [first, cost().await]
}

/// Limits with the plans `free` and `paid`, and these costs.
fn with_costs(costs: &str) -> LiveLimits {
    LiveLimits::new(limits(&format!(
        "policies.free.rate = '3/min'\npolicies.paid.rate = '100/min'\n\
         default = {{ policies = ['free', 'paid'], costs = {{ {costs} }} }}"
    )))
}

/// The file can name no other policies than its own.
#[tokio::test]
async fn plans_with_one_count_cost_what_the_file_says() {
    let live = with_costs("free = 2, paid = 10");
    let plans = || Database::new("paid").plans(&live);
    let layer = |plans: Plans| live.layer(limiter(), GlobalKey).unwrap().with_policies(plans);
    let charged = |names: [&str; 2]| [(names[0].to_owned(), 2_u64), (names[1].to_owned(), 10)];
    assert_eq!(costs(layer(plans())).await, charged(["free", "paid"]));
    assert_eq!(costs(layer(plans().with_one_count("plan"))).await, charged(["plan"; 2]));
    assert_eq!(costs(layer(plans().with_one_count("one").with_one_count("two"))).await, charged(["two"; 2]));
    assert_eq!(costs(layer(plans().with_one_count("free"))).await, charged(["free"; 2]));
    assert_eq!(costs(layer(plans().with_one_count("plan")).with_shadow(true)).await, charged(["plan"; 2]));
}

#[tokio::test]
async fn the_cost_of_a_plan_precedes_the_cost_of_the_count_of_all_plans() {
    let live = with_costs("free = 2");
    let plans = Database::new("paid").plans(&live).with_one_count("plan");
    let layer = live.layer(limiter(), GlobalKey).unwrap().with_policies(plans).with_cost_of("plan", 5);
    assert_eq!(costs(layer).await, [("plan".to_owned(), 2), ("plan".to_owned(), 5)]);
}

#[tokio::test]
async fn a_source_may_return_names_and_limits_of_single_accounts() {
    let live = LiveLimits::new(with_paid(100));
    let source = |key: Key| async move {
        Ok::<_, ConfigError>(match key.encoded() {
            b"17" => Some(Plan::from(Policy::per_minute("own", 7)?)),
            b"18" => Some(Plan::from("paid")),
            _ => None,
        })
    };
    let plans = quiet(Plans::of_limits(&live, source, "free").unwrap());
    for (key, expected) in [("17", 7), ("18", 100), ("19", 3)] {
        look_up(&plans, key).await;
        assert_eq!(limit(&plans, key), expected, "{key}");
    }
    plans.insert("19", "PAID").unwrap();
    assert_eq!(limit(&plans, "19"), 100);
    says(plans.insert("19", "gold").unwrap_err(), r#"the limits have no policy "gold", which is a plan"#);
    plans.insert("19", None::<String>).unwrap();
    assert_eq!(limit(&plans, "19"), 3);
}

/// A name says nothing without limits.
#[tokio::test]
async fn names_without_limits_are_failed_look_ups() {
    let plans = Plans::new(|_: Key| async { Ok::<_, &str>("paid") }, per_minute("p", 3)).unwrap();
    let events = super::Events::default();
    let plans = observed(plans, events.clone());
    look_up(&plans, "17").await;
    assert_eq!((limit(&plans, "17"), events.lookups()), (3, vec!["invalid"]));
    says(plans.insert("17", "paid").unwrap_err(), "these plans have no limits to find it in");
}
