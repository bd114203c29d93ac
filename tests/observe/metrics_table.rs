//! The table of metrics in the guide, compared with what [`Metrics`] describes and records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{Router, routing::get};
use metrics::{
    Counter, Gauge, Histogram, Key as MetricKey, KeyName, Metadata, Recorder, SharedString, Unit,
    set_default_local_recorder,
};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, LiveLimits, MemoryStore, Policy, RateLimitLayer,
    decision::Source, limits::LimitsConfig, observe::Metrics, plans::Plans, policy::HoldSettings,
};

use super::fill_a_store;
use crate::support::{DownStore, SilentStore, http::get as fetch, per_minute};

const PAGE: &str = include_str!("../../docs/operations.md");

/// A metric: its type, its unit, and its labels with their values. The values of `policy` are names of the service.
#[derive(Debug, Default, PartialEq)]
struct Shown {
    kind: String,
    unit: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The rows of the table, by name.
fn table() -> BTreeMap<String, Shown> {
    let head = "| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n";
    let (_, rows) = PAGE.split_once(head).expect("the page has the table");
    let rows = rows.lines().take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, meaning] = cells[..] else { panic!("a row has five cells: {line}") };
        assert!(!meaning.is_empty(), "{line}");
        let labels = labels.split("; ").filter(|label| *label != "-").map(|label| {
            let (label, values) = label.split_once(": ").unwrap_or((label, ""));
            let values = values.split(", ").filter(|value| !value.is_empty());
            (label.to_owned(), values.map(str::to_owned).collect())
        });
        let shown = Shown { kind: kind.to_owned(), unit: unit.to_owned(), labels: labels.collect() };
        (name.to_owned(), shown)
    });
    rows.collect()
}

/// A recorder that keeps what is described, and the labels with which metrics are recorded.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, Shown>>>);

impl Seen {
    fn describe(&self, name: &KeyName, kind: &str, unit: Option<Unit>) {
        let mut seen = self.0.lock().unwrap();
        let shown = seen.entry(name.as_str().to_owned()).or_default();
        (shown.kind, shown.unit) = (kind.to_owned(), unit.unwrap().as_str().to_owned());
    }

    fn register(&self, key: &MetricKey) {
        let mut seen = self.0.lock().unwrap();
        let shown = seen.entry(key.name().to_owned()).or_default();
        for label in key.labels() {
            shown.labels.entry(label.key().to_owned()).or_default().insert(label.value().to_owned());
        }
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "counter", unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "gauge", unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "histogram", unit);
    }

    fn register_counter(&self, key: &MetricKey, _: &Metadata<'_>) -> Counter {
        self.register(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &MetricKey, _: &Metadata<'_>) -> Gauge {
        self.register(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &MetricKey, _: &Metadata<'_>) -> Histogram {
        self.register(key);
        Histogram::noop()
    }
}

/// A store whose verdicts are remembered ones, as those of a deny cache.
#[derive(Debug, Default)]
struct Remembers(MemoryStore);

impl Store for Remembers {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        match self.0.check(check) {
            Answer::Ready(verdict) => {
                Answer::Ready(verdict.map(|verdict| Verdict { source: Source::DenyCache, ..verdict }))
            }
            Answer::Pending(_) => unreachable!("a memory store answers at once"),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }
}

fn app<K: KeyExtractor>(layer: RateLimitLayer<K>) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer)
}

/// Causes each event at least once, except the calls of a store over a network.
async fn cause_every_event() {
    let observed = |limiter: Limiter| limiter.without_notices().with_observer(Metrics::new());
    let policy = per_minute("p", 1);

    let limiter = observed(Limiter::new(MemoryStore::with_capacity(1).unwrap()));
    for key in ["k", "k", "another key"] {
        let _ = limiter.check(key, &policy, 1).await.unwrap();
    }
    limiter.reset("k", &policy).await.unwrap();
    limiter.record("recorded", &policy, 1).await.unwrap();
    drop(limiter.hold("k", &policy.clone().with_holds(HoldSettings::new()), 1).await.unwrap());
    let leased = Policy::per_minute("p", 10_000).unwrap().with_lease(1_000);
    for _ in 0..50 {
        let _ = limiter.check("hot", &leased, 1).await.unwrap();
    }
    let _ = observed(Limiter::new(Remembers::default())).check("k", &policy, 1).await.unwrap();

    let silent = observed(Limiter::new(SilentStore));
    tokio::time::timeout(Duration::from_millis(1), silent.check("k", &policy, 1)).await.unwrap_err();
    let down = RateLimitLayer::new(observed(Limiter::new(DownStore)), policy.clone(), GlobalKey);
    fetch(&app(down), "/").await;

    let refuses = RateLimitLayer::new(limiter, policy.clone(), HeaderKey::new("x-api-key").unwrap());
    fetch(&app(refuses.clone()), "/").await;
    fetch(&app(refuses.with_shadow(true)), "/").await;

    let source = |_: Key| async { Ok::<_, String>(Some(Policy::per_minute("p", 9).unwrap())) };
    let plans = Plans::new(source, policy).unwrap();
    let layer = RateLimitLayer::new(observed(Limiter::new(MemoryStore::new())), plans.clone(), GlobalKey);
    drop(layer.validated().unwrap());
    plans.get("k");
    tokio::time::sleep(Duration::from_secs(1)).await;

    let limits = "policies.p.rate = '10/min'\ndefault.policies = ['p']";
    let limits: LimitsConfig = toml::from_str(limits).unwrap();
    let live = LiveLimits::new(limits.clone());
    drop(live.layer(observed(Limiter::new(MemoryStore::new())), GlobalKey).unwrap());
    live.replace(limits).unwrap();
    fill_a_store(Metrics::new());
}

#[tokio::test(start_paused = true)]
async fn the_table_in_the_guide_names_every_metric_with_its_type_unit_and_labels() {
    let seen = Seen::default();
    let _guard = set_default_local_recorder(&seen);
    cause_every_event().await;
    let (seen, table) = (seen.0.lock().unwrap(), table());
    assert_eq!(
        table.keys().collect::<Vec<_>>(),
        seen.keys().collect::<Vec<_>>(),
        "the metrics of the table, and those of the code"
    );
    let histograms = table.iter().filter(|(_, row)| row.kind == "histogram").map(|(name, _)| name.as_str());
    let with_buckets: BTreeSet<&str> = Metrics::BUCKETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        histograms.collect::<BTreeSet<_>>(),
        with_buckets,
        "the histograms of the table, and those with buckets"
    );
    for (name, shown) in &*seen {
        let row = &table[name];
        assert_eq!((&row.kind, &row.unit), (&shown.kind, &shown.unit), "{name}");
        // A call of a store over a network records these two, without labels.
        if !name.starts_with("tollgate_batch_") && name != "tollgate_breaker_state" {
            assert!(!shown.labels.is_empty(), "{name}: no event of this test records it");
        }
        let labels = |shown: &Shown| shown.labels.keys().cloned().collect::<Vec<_>>();
        assert_eq!(labels(row), labels(shown), "{name}");
        for (label, values) in &shown.labels {
            let unknown = values.difference(&row.labels[label]).next();
            assert!(
                OPEN.contains(&label.as_str()) || unknown.is_none(),
                "{name}: the row lacks the value {unknown:?} of {label}"
            );
        }
    }
}

/// Labels whose values the service chooses.
const OPEN: [&str; 3] = ["method", "policy", "route"];

/// The words that a function of the crate returns: all strings in its body.
fn words(file: &str, function: &str) -> BTreeSet<String> {
    let (_, body) = file.split_once(function).unwrap_or_else(|| panic!("no {function}"));
    let (body, _) = body.split_once("\n    }\n").unwrap();
    strings(body)
}

fn strings(code: &str) -> BTreeSet<String> {
    code.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_table_in_the_guide_lists_every_value_of_every_label() {
    macro_rules! source {
        ($file:literal) => {
            include_str!(concat!("../../src/observe/", $file))
        };
    }
    let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
    let but = |words: BTreeSet<String>, labels: &[&str]| &words - &set(labels);
    let metrics = source!("metrics.rs");
    let (changes, _) = metrics.split_once("match changed.change {").unwrap().1.split_once("};").unwrap();
    let (resets, count_changes) = source!("by_hand.rs").split_once("impl<'a> CountChangeEvent").unwrap();
    let (_, plan_causes) = source!("plan.rs").split_once("impl PlanFallbackCause").unwrap();
    let warnings = source!("warning.rs").split("Self::new(\"").skip(1);
    let warnings = warnings.map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    let states = ["closed", "open", "probing"].map(str::to_owned);
    let judged = &words(source!("check_event.rs"), "pub(super) fn outcome")
        - &set(&["blocked", "open", "closed", "local", "overloaded"]);
    let expected = [
        (
            "tollgate_decisions_total",
            "outcome",
            &words(source!("check_event.rs"), "pub(super) fn outcome") | &set(&["would_deny"]),
        ),
        ("tollgate_fallback_admits_total", "outcome", set(&["open", "local"])),
        ("tollgate_store_errors_total", "kind", words(source!("check_event.rs"), "pub(super) fn cause(")),
        ("tollgate_refused_requests_total", "cause", words(source!("request.rs"), "pub(super) fn cause")),
        (
            "tollgate_refusals_by_route_total",
            "cause",
            &words(source!("request.rs"), "pub(super) fn cause")
                | &set(&["denied", "blocked", "closed", "local", "overloaded"]),
        ),
        ("tollgate_would_refuse_total", "cause", words(source!("request.rs"), "pub(super) fn cause")),
        ("tollgate_exempt_requests_total", "cause", words(source!("request.rs"), "pub(crate) fn as_str")),
        ("tollgate_holds_ended_total", "end", words(source!("observer.rs"), "pub(crate) fn as_str")),
        ("tollgate_resets_total", "outcome", words(resets, "pub(super) fn outcome")),
        ("tollgate_count_changes_total", "change", strings(changes)),
        ("tollgate_count_changes_total", "outcome", words(count_changes, "pub(super) fn outcome")),
        ("tollgate_plan_lookups_total", "outcome", words(source!("plan.rs"), "pub(crate) fn as_str")),
        ("tollgate_plan_lookup_duration_seconds", "outcome", words(source!("plan.rs"), "pub(crate) fn as_str")),
        ("tollgate_plan_fallbacks_total", "plan", but(words(metrics, "fn count_fallback"), &["plan", "cause"])),
        ("tollgate_plan_fallbacks_total", "cause", words(plan_causes, "pub(crate) fn as_str")),
        ("tollgate_warnings_total", "warning", warnings),
        ("tollgate_limits_changes_total", "outcome", words(source!("limits_change.rs"), "pub(super) fn outcome")),
        ("tollgate_check_duration_seconds", "outcome", &judged | &set(&["error"])),
        ("tollgate_breaker_state", "state", BTreeSet::from(states)),
    ];
    let mut table = table();
    for (name, label, values) in expected {
        let shown = table.get_mut(name).unwrap().labels.remove(label).unwrap();
        assert_eq!(shown, values, "{name}: the values of {label} in the table, and those in the code");
    }
    for (name, shown) in table {
        let others: Vec<_> = shown.labels.into_keys().collect();
        assert!(
            others.iter().all(|label| OPEN.contains(&label.as_str())),
            "{name}: the values of {others:?} are not compared"
        );
    }
}

/// What the alert rules and the dashboard ask for: the names of metrics, each with the labels that it is filtered by.
fn queried(text: &str) -> Vec<(String, BTreeMap<String, BTreeSet<String>>)> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let metric = |place: usize| {
        let (name, rest) = text[place..].split_at(text[place..].find(|letter| !is_name(letter)).unwrap());
        let filter = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(filter, _)| filter);
        let labels = filter.split(',').filter_map(|one| one.split_once('='));
        let labels = labels.map(|(label, values)| {
            let values = values.trim_matches(['~', '"', '\\']).split('|').map(str::to_owned);
            (label.to_owned(), values.collect())
        });
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        (parts.unwrap_or(name).to_owned(), labels.collect())
    };
    text.match_indices("tollgate_").map(|(place, _)| metric(place)).collect()
}

#[test]
fn alert_rules_and_the_dashboard_name_metrics_and_labels_that_exist() {
    let table = table();
    for text in
        [include_str!("../../docs/operations/alerts.yaml"), include_str!("../../docs/operations/dashboard.json")]
    {
        let queried = queried(text);
        assert!(queried.len() > 10);
        for (name, labels) in queried {
            let row = table.get(&name).unwrap_or_else(|| panic!("{name} is in no row of the table"));
            for (label, values) in labels {
                let known = row.labels.get(&label).unwrap_or_else(|| panic!("{name} has no label {label}"));
                assert_eq!(values.difference(known).next(), None, "{name}: {label}");
            }
        }
    }
}
