//! Changes of limits under load, for every algorithm. Both stores run these tests.

use std::{any::Any, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode};
use tollgate::{GlobalKey, Limiter, LiveLimits, ManualClock, Policy, limits::LimitsConfig};
use tower::ServiceExt;

use super::files::{limits, only};

/// A limiter over a store whose clock the test sets.
pub(crate) struct Fixture {
    limiter: Limiter,
    clock: ManualClock,
    /// Ends the server of the store.
    _guard: Box<dyn Any>,
}

/// A service behind a layer that follows limits.
struct Service {
    live: LiveLimits,
    app: Router,
}

/// A response, as a client sees it.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    /// The units left in the field `RateLimit`.
    remaining: Option<u64>,
    retry_after: Option<u64>,
}

impl Fixture {
    pub(crate) fn new(limiter: Limiter, clock: ManualClock, guard: impl Any) -> Self {
        Self { limiter, clock, _guard: Box::new(guard) }
    }

    fn serve(&self, limits: LimitsConfig) -> Service {
        let live = LiveLimits::new(limits);
        let layer = live.layer(self.limiter.clone(), GlobalKey).unwrap();
        let routes = ["/", "/search", "/healthz"].into_iter();
        let app = routes.fold(Router::new(), |app, route| app.route(route, get(|| async {}))).layer(layer);
        Service { live, app }
    }
}

impl Service {
    fn change(&self, limits: LimitsConfig) {
        self.live.replace(limits).unwrap();
    }

    async fn get(&self, path: &str) -> Seen {
        let response = self.app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let text = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
        let remaining =
            text("ratelimit").map(|field| field.split(';').find_map(|part| part.strip_prefix("r=")).unwrap());
        Seen {
            status: response.status().as_u16(),
            remaining: remaining.map(|units| units.parse().unwrap()),
            retry_after: text("retry-after").map(|seconds| seconds.parse().unwrap()),
        }
    }

    /// The number of requests that pass until one is denied.
    async fn spend(&self, path: &str) -> u64 {
        for passed in 0..1_000 {
            match StatusCode::from_u16(self.get(path).await.status).unwrap() {
                StatusCode::OK => {}
                StatusCode::TOO_MANY_REQUESTS => return passed,
                status => panic!("status {status}"),
            }
        }
        panic!("{path} is not limited");
    }

    async fn spend_some(&self, requests: u64) {
        for _ in 0..requests {
            assert_eq!(self.get("/").await.status, 200);
        }
    }
}

/// All tests of this module, with the fixture that `$start` makes.
macro_rules! suite {
    ($start:path) => {
        $crate::live::changes::suite!($start:
            halved_logs_deny_until_enough_units_have_left
            halved_counters_deny_until_the_estimate_is_below_the_limit
            halved_fixed_windows_deny_until_the_window_ends
            halved_buckets_keep_the_time_until_they_are_full
            a_doubled_limit_admits_the_added_units_at_once
            a_raised_limit_is_not_answered_with_an_old_denial
            a_lowered_and_raised_limit_keeps_the_count
            a_new_window_starts_a_new_count_and_the_old_one_returns_with_the_old_window
            a_new_resolution_starts_a_new_count
            a_new_algorithm_starts_a_new_count
            a_new_number_of_shards_starts_a_new_count
            a_ban_ends_with_another_duration_or_many_more_denials
            a_changed_burst_keeps_what_was_taken
            policies_can_be_removed_and_added
            routes_can_be_added_and_removed
            a_changed_cost_applies_to_the_next_request
            exempt_can_be_switched_on_and_off
            a_shadow_limit_that_is_enforced_keeps_its_count
            jobs_use_the_policy_in_force
        );
    };
    ($start:path: $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::live::changes::$name($start()).await;
            }
        )*
    };
}
pub(crate) use suite;

fn per_minute(limit: u64, algorithm: &str) -> LimitsConfig {
    only(&format!("rate = '{limit}/min'\nalgorithm = '{algorithm}'"))
}

const SECOND: Duration = Duration::from_secs(1);

const ALGORITHMS: [&str; 4] = ["log", "counter", "fixed", "token-bucket"];

/// A client that has spent 8 of 10 units sees at a limit of 5: denied, with nothing left, and a Retry-After at which it
/// passes.
pub(crate) async fn halved_logs_deny_until_enough_units_have_left(fixture: Fixture) {
    let service = fixture.serve(per_minute(10, "log"));
    for _ in 0..8 {
        service.spend_some(1).await;
        fixture.clock.advance(SECOND);
    }
    service.change(per_minute(5, "log"));
    // 4 of 8 units have to leave: the fourth one was spent in second 3.
    let denied = Seen { status: 429, remaining: Some(0), retry_after: Some(60 + 3 - 8) };
    assert_eq!(service.get("/").await, denied);
    fixture.clock.advance(SECOND * 55 - Duration::from_micros(1));
    assert_eq!(service.get("/").await.status, 429);
    fixture.clock.advance(Duration::from_micros(1));
    assert_eq!(service.get("/").await, Seen { status: 200, remaining: Some(0), retry_after: None });
}

pub(crate) async fn halved_counters_deny_until_the_estimate_is_below_the_limit(fixture: Fixture) {
    let service = fixture.serve(per_minute(10, "counter"));
    service.spend_some(8).await;
    service.change(per_minute(5, "counter"));
    let Seen { status: 429, remaining: Some(0), retry_after: Some(wait) } = service.get("/").await else {
        panic!("not denied")
    };
    // A unit counts for up to two windows.
    assert!((60..=120).contains(&wait), "{wait}");
    fixture.clock.advance(SECOND * u32::try_from(wait).unwrap());
    assert_eq!(service.get("/").await.status, 200);
}

pub(crate) async fn halved_fixed_windows_deny_until_the_window_ends(fixture: Fixture) {
    let service = fixture.serve(per_minute(10, "fixed"));
    service.spend_some(8).await;
    service.change(per_minute(5, "fixed"));
    let Seen { status: 429, remaining: Some(0), retry_after: Some(wait) } = service.get("/").await else {
        panic!("not denied")
    };
    assert!((1..=60).contains(&wait), "{wait}");
    fixture.clock.advance(SECOND * u32::try_from(wait).unwrap());
    assert_eq!(service.spend("/").await, 5);
}

pub(crate) async fn halved_buckets_keep_the_time_until_they_are_full(fixture: Fixture) {
    let service = fixture.serve(per_minute(10, "token-bucket"));
    service.spend_some(8).await;
    // Full again in 48 s, which is worth 4 units of 12 s each.
    service.change(per_minute(5, "token-bucket"));
    assert_eq!(service.spend("/").await, 1);
    // One unit of 12 s later, one more fits.
    fixture.clock.advance(SECOND * 12);
    assert_eq!(service.spend("/").await, 1);
}

pub(crate) async fn a_doubled_limit_admits_the_added_units_at_once(fixture: Fixture) {
    // The 60 s until the full bucket of 10 are worth all 20 units at the doubled rate, so a bucket admits none at once.
    for (algorithm, added) in ALGORITHMS.into_iter().zip([10, 10, 10, 0]) {
        let service = fixture.serve(per_minute(10, algorithm));
        assert_eq!(service.spend("/").await, 10, "{algorithm}");
        service.change(per_minute(20, algorithm));
        assert_eq!(service.spend("/").await, added, "{algorithm}");
        fixture.clock.advance(SECOND * 3);
        let refilled = u64::from(algorithm == "token-bucket");
        assert_eq!(service.spend("/").await, refilled, "{algorithm}");
    }
}

/// The store remembers denials. No denial under one limit may answer a request under another one.
pub(crate) async fn a_raised_limit_is_not_answered_with_an_old_denial(fixture: Fixture) {
    for algorithm in ["log", "counter", "fixed"] {
        let service = fixture.serve(per_minute(5, algorithm));
        let mut limit = 5;
        let mut spent = service.spend("/").await;
        for _ in 0..10 {
            // Denied a few times, so that the denial is remembered.
            for _ in 0..3 {
                assert_eq!(service.get("/").await.remaining, Some(0), "{algorithm}");
            }
            service.change(per_minute(5, algorithm));
            assert_eq!(service.get("/").await.status, 429, "{algorithm}");
            limit += 2;
            service.change(per_minute(limit, algorithm));
            spent += service.spend("/").await;
            assert_eq!(spent, limit, "{algorithm}");
        }
    }
}

pub(crate) async fn a_lowered_and_raised_limit_keeps_the_count(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let service = fixture.serve(per_minute(20, algorithm));
        service.spend_some(8).await;
        for _ in 0..5 {
            service.change(per_minute(10, algorithm));
            service.change(per_minute(20, algorithm));
        }
        assert_eq!(service.spend("/").await, 12, "{algorithm}");
    }
}

pub(crate) async fn a_new_window_starts_a_new_count_and_the_old_one_returns_with_the_old_window(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let every = |seconds: u64| only(&format!("rate = '10/{seconds}s'\nalgorithm = '{algorithm}'"));
        let service = fixture.serve(every(60));
        assert_eq!(service.spend("/").await, 10, "{algorithm}");
        service.change(every(50));
        assert_eq!(service.spend("/").await, 10, "{algorithm}");
        service.change(every(60));
        assert_eq!(service.spend("/").await, 0, "{algorithm}");
    }
}

pub(crate) async fn a_new_resolution_starts_a_new_count(fixture: Fixture) {
    let service = fixture.serve(only("rate = '10/min'"));
    assert_eq!(service.spend("/").await, 10);
    service.change(only("rate = '10/min'\nresolution = '1s'"));
    assert_eq!(service.spend("/").await, 10);
    service.change(only("rate = '12/min'\nresolution = '1s'"));
    assert_eq!(service.spend("/").await, 2);
}

pub(crate) async fn a_new_algorithm_starts_a_new_count(fixture: Fixture) {
    let service = fixture.serve(per_minute(10, "log"));
    assert_eq!(service.spend("/").await, 10);
    service.change(per_minute(10, "token-bucket"));
    assert_eq!(service.spend("/").await, 10);
    service.change(per_minute(10, "log"));
    assert_eq!(service.spend("/").await, 0);
}

pub(crate) async fn a_new_number_of_shards_starts_a_new_count(fixture: Fixture) {
    let service = fixture.serve(only("rate = '10/min'"));
    assert_eq!(service.spend("/").await, 10);
    service.change(only("rate = '10/min'\nshards = 2"));
    assert_eq!(service.spend("/").await, 10);
    service.change(only("rate = '10/min'"));
    assert_eq!(service.get("/").await.status, 429);
}

pub(crate) async fn a_ban_ends_with_another_duration_or_many_more_denials(fixture: Fixture) {
    let banning = |denials: u64, duration: &str| {
        only(&format!("rate = '10/min'\nban-after = {{ denials = {denials}, for = '{duration}' }}"))
    };
    let service = fixture.serve(banning(2, "10m"));
    assert_eq!(service.spend("/").await, 10);
    assert_eq!(service.get("/").await.status, 429, "the second denial, which bans");
    fixture.clock.advance(SECOND * 60);
    assert_eq!(service.get("/").await.status, 429, "the window is over, the ban is not");
    for (denials, duration, status) in [(3, "10m", 429), (2, "11m", 200), (2, "10m", 429), (20, "10m", 200)] {
        service.change(banning(denials, duration));
        assert_eq!(service.get("/").await.status, status, "{denials} denials in {duration}");
    }
}

pub(crate) async fn a_changed_burst_keeps_what_was_taken(fixture: Fixture) {
    let burst = |units| only(&format!("rate = '60/min'\nalgorithm = 'token-bucket'\nburst = {units}"));
    let service = fixture.serve(burst(20));
    service.spend_some(8).await;
    service.change(burst(10));
    assert_eq!(service.spend("/").await, 2);
    service.change(burst(30));
    assert_eq!(service.spend("/").await, 20);
}

pub(crate) async fn policies_can_be_removed_and_added(fixture: Fixture) {
    let policies = "policies.a.rate = '20/min'\npolicies.b.rate = '5/min'\ndefault.policies = ";
    let both = || limits(&format!("{policies}['a', 'b']"));
    let service = fixture.serve(both());
    assert_eq!(service.spend("/").await, 5);
    service.change(limits(&format!("{policies}['a']")));
    // The 5 units under `a` count, and nothing is charged under `b`.
    assert_eq!(service.spend("/").await, 15);
    fixture.clock.advance(SECOND * 60);
    service.change(both());
    assert_eq!(service.spend("/").await, 5);
    // A policy that is added within its window finds its count.
    service.change(limits("policies.a.rate = '20/min'\ndefault.policies = ['a']"));
    assert_eq!(service.spend("/").await, 15);
    service.change(limits(&format!("{policies}['b']")));
    assert_eq!(service.spend("/").await, 0);
}

pub(crate) async fn routes_can_be_added_and_removed(fixture: Fixture) {
    let base = "policies.p.rate = '10/min'\npolicies.search.rate = '2/min'\ndefault.policies = ['p']\n";
    let service = fixture.serve(limits(base));
    assert_eq!(service.get("/search").await.remaining, Some(9));
    service.change(limits(&format!("{base}routes.'/search'.policies = ['search']")));
    assert_eq!(service.spend("/search").await, 2);
    // Requests to the route were not charged under the default.
    assert_eq!(service.get("/").await.remaining, Some(8));
    service.change(limits(base));
    assert_eq!(service.get("/search").await.remaining, Some(7));
}

pub(crate) async fn a_changed_cost_applies_to_the_next_request(fixture: Fixture) {
    let cost = |units| limits(&format!("policies.p.rate = '20/min'\ndefault = {{ policies = ['p'], cost = {units} }}"));
    let service = fixture.serve(cost(1));
    assert_eq!(service.get("/").await.remaining, Some(19));
    service.change(cost(10));
    assert_eq!(service.get("/").await.remaining, Some(9));
    assert_eq!(service.get("/").await.status, 429);
    service.change(cost(3));
    assert_eq!(service.get("/").await.remaining, Some(6));
}

pub(crate) async fn exempt_can_be_switched_on_and_off(fixture: Fixture) {
    let base = "policies.p.rate = '3/min'\ndefault.policies = ['p']\n";
    let exempt = || limits(&format!("{base}routes.'/healthz'.exempt = true"));
    let service = fixture.serve(limits(base));
    assert_eq!(service.spend("/healthz").await, 3);
    service.change(exempt());
    for _ in 0..10 {
        assert_eq!(service.get("/healthz").await, Seen { status: 200, remaining: None, retry_after: None });
    }
    assert_eq!(service.get("/").await.status, 429);
    service.change(limits(base));
    assert_eq!(service.get("/healthz").await.status, 429);
}

pub(crate) async fn a_shadow_limit_that_is_enforced_keeps_its_count(fixture: Fixture) {
    let unnoticed = Seen { status: 200, remaining: None, retry_after: None };
    for (name, shadow) in [("a", "policies.a.shadow = true"), ("b", "shadow = true")] {
        let enforced = format!("policies.{name}.rate = '3/min'\ndefault.policies = ['{name}']\n");
        let service = fixture.serve(limits(&format!("{enforced}{shadow}")));
        for _ in 0..5 {
            assert_eq!(service.get("/").await, unnoticed, "{shadow}");
        }
        service.change(limits(&enforced));
        assert_eq!(service.get("/").await.status, 429, "{shadow}");
        service.change(limits(&format!("{enforced}{shadow}")));
        assert_eq!(service.get("/").await, unnoticed, "{shadow}");
    }
}

pub(crate) async fn jobs_use_the_policy_in_force(fixture: Fixture) {
    let live = LiveLimits::new(per_minute(2, "log"));
    let policy = || -> Policy { live.policy("P").unwrap() };
    assert!(fixture.limiter.check("job", &policy(), 2).await.unwrap().is_allowed());
    assert!(!fixture.limiter.check("job", &policy(), 1).await.unwrap().is_allowed());
    live.replace(per_minute(3, "log")).unwrap();
    assert!(fixture.limiter.check("job", &policy(), 1).await.unwrap().is_allowed());
    assert_eq!(live.policy("q"), None);
}
