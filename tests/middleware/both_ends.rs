//! Both ends of a table of plans behind a layer: blocked, and without a limit.

use tollgate::policy::{self, Policies};
use tollgate::rejection::{Denial, PlainText};
use tollgate::{GlobalKey, HeaderKey, Key, Policy, RateLimitLayer};

use crate::support::app::{app, down_limiter, limiter, per_minute};
use crate::support::http::{get, get_with};
use crate::support::recorder::Recorder;

fn plans() -> impl policy::PolicySource {
    let (free, suspended) = (per_minute(1), Policy::blocked("suspended").unwrap());
    policy::from_fn(move |_, tenant: &Key| match tenant.encoded() {
        b"staff" => Policies::unlimited(),
        b"mallory" => suspended.clone().into(),
        _ => free.clone().into(),
    })
}

fn by_tenant() -> HeaderKey {
    HeaderKey::new("x-tenant").unwrap()
}

#[tokio::test]
async fn a_blocked_request_is_403_without_a_wait_and_without_fields() {
    let suspended = Policy::blocked("suspended").unwrap();
    for limiter in [limiter(), down_limiter()] {
        let limit = RateLimitLayer::new(limiter, suspended.clone(), GlobalKey).with_cost(50).fail_open();
        let plain = app(limit.clone().with_rejection(PlainText::default()));
        let reply = get(&app(limit.validated().unwrap()), "/").await;
        assert_eq!(reply.status, 403);
        for field in ["retry-after", "ratelimit", "ratelimit-policy"] {
            assert_eq!(reply.header(field), None, "{field}");
        }
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
        assert_eq!(reply.json()["detail"], "Policy suspended lets no request through.");
        assert_eq!(get(&plain, "/").await.text(), "Policy suspended lets no request through.\n");
    }
}

#[tokio::test]
async fn a_table_of_plans_has_both_ends() {
    let recorder = Recorder::default();
    let limit = RateLimitLayer::new(limiter().with_observer(recorder.clone()), plans(), by_tenant());
    let app = app(limit.validated().unwrap());
    let ask = async |tenant| get_with(&app, "/", &[("x-tenant", tenant)]).await;
    for (free, staff, mallory) in [(200, 200, 403), (429, 200, 403)] {
        assert_eq!(ask("free").await.status, free);
        let unlimited = ask("staff").await;
        assert_eq!((unlimited.status.as_u16(), unlimited.header("ratelimit")), (staff, None));
        assert_eq!(ask("mallory").await.status, mallory);
    }
    let words: Vec<&str> = recorder.take().decisions.iter().map(|decision| decision.outcome).collect();
    assert_eq!(words, ["allowed", "blocked", "denied", "blocked"]);
}

#[tokio::test]
async fn a_further_key_limits_what_an_unlimited_plan_does_not() {
    let all = RateLimitLayer::new(limiter(), plans(), by_tenant()).and(per_minute(2), GlobalKey);
    let app = app(all.validated().unwrap());
    for status in [200, 200, 429] {
        assert_eq!(get_with(&app, "/", &[("x-tenant", "staff")]).await.status, status);
    }
}

#[tokio::test]
async fn an_empty_list_of_policies_is_still_a_mistake() {
    let none = policy::from_fn(|_, _| Vec::<Policy>::new());
    let app = app(RateLimitLayer::new(limiter(), none, GlobalKey));
    assert_eq!(get(&app, "/").await.status, 500);
}

#[tokio::test]
async fn a_shadow_layer_refuses_no_blocked_request() {
    let limit = RateLimitLayer::new(limiter(), plans(), by_tenant()).with_shadow(true);
    let app = app(limit.validated().unwrap());
    for tenant in ["mallory", "mallory", "staff"] {
        assert_eq!(get_with(&app, "/", &[("x-tenant", tenant)]).await.status, 200);
    }
}

#[tokio::test]
async fn an_outer_layer_reads_why_a_request_was_blocked() {
    use tollgate::{Decision, decision::Source, rejection::Reason};
    use tower::ServiceExt;

    let app = app(RateLimitLayer::new(limiter(), Policy::blocked("suspended").unwrap(), GlobalKey));
    let response = app.oneshot(crate::support::http::request(axum::http::Method::GET, "/", &[])).await.unwrap();
    let denial = response.extensions().get::<Denial>().unwrap();
    assert_eq!((denial.reason(), denial.retry_after(), denial.decision().is_none()), (Reason::Blocked, None, true));
    let decision = response.extensions().get::<Decision>().unwrap();
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Policy));
}
