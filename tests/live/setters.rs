//! Setters of a layer that follows limits, and limits that do not fit a layer.

use tollgate::{
    GlobalKey, HeaderStyle, Limiter, LiveLimits, MemoryStore, Policy, RateLimitLayer, Route, limits::LimitsConfig,
    rejection::PlainText,
};

use super::files::{limits, only};
use crate::support::app::{app, limiter};
use crate::support::{DownStore, says};
use crate::support::{http::get, recorder::Recorder};

fn rate(limit: u64) -> LimitsConfig {
    only(&format!("rate = '{limit}/min'"))
}

fn following(limits: LimitsConfig) -> (LiveLimits, RateLimitLayer<GlobalKey>) {
    let live = LiveLimits::new(limits);
    let layer = live.layer(limiter(), GlobalKey).unwrap();
    (live, layer)
}

#[tokio::test]
async fn a_setter_stays_in_force_and_everything_else_follows() {
    let (live, layer) = following(rate(10));
    let expensive = app(layer.clone().with_cost(4));
    let styled = app(layer.clone().with_headers(HeaderStyle::XRateLimitDelta).with_rejection(PlainText::default()));
    let routed = app(layer.clone().route("/search", Route::new().cost(3)));
    let named = app(layer.with_cost_of("p", 2));
    live.replace(limits("policies.p.rate = '30/min'\ndefault = { policies = ['p'], cost = 5 }")).unwrap();
    assert_eq!(get(&expensive, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=26;t=60"#));
    let reply = get(&styled, "/").await;
    assert_eq!((reply.header("ratelimit"), reply.header("x-ratelimit-remaining").as_deref()), (None, Some("21")));
    assert_eq!(get(&routed, "/search").await.header("ratelimit").as_deref(), Some(r#""p";r=18;t=60"#));
    assert_eq!(get(&routed, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=13;t=60"#));
    assert_eq!(get(&named, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=11;t=60"#));
}

#[tokio::test]
async fn a_failure_policy_and_policies_that_code_sets_stay() {
    let live = LiveLimits::new(rate(10));
    let layer = live.layer(Limiter::new(DownStore).without_notices(), GlobalKey).unwrap();
    let (open, closed) = (app(layer.clone()), app(layer.fail_closed()));
    let own = app(live.layer(limiter(), GlobalKey).unwrap().with_policies(Policy::per_minute("own", 3).unwrap()));
    live.replace(rate(20)).unwrap();
    assert_eq!(
        (get(&open, "/").await.status, get(&closed, "/").await.status),
        (200.try_into().unwrap(), 503.try_into().unwrap())
    );
    assert_eq!(get(&own, "/").await.header("ratelimit").as_deref(), Some(r#""own";r=2;t=60"#));
}

#[tokio::test]
async fn a_further_key_is_charged_too_and_its_policies_may_not_clash() {
    let (live, layer) = following(rate(10));
    let both = app(layer.and(Policy::per_minute("all", 5).unwrap(), GlobalKey));
    live.replace(rate(20)).unwrap();
    assert_eq!(get(&both, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=19;t=60, "all";r=4;t=60"#));
    let error = live.replace(limits("policies.ALL.rate = '1/s'\ndefault.policies = ['ALL']")).unwrap_err();
    says(error, "two policies of one check are called ");
    assert_eq!(get(&both, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=18;t=60, "all";r=3;t=60"#));
}

/// Limits that fit all layers but one change none of them.
#[tokio::test]
async fn limits_that_one_layer_refuses_change_no_layer() {
    let (live, layer) = following(rate(10));
    let plain = app(layer.clone());
    let other = app(live.layer(Limiter::new(MemoryStore::new()), GlobalKey).unwrap());
    let expensive = layer.with_cost(8);
    let version = live.version();
    let error = live.replace(rate(5)).unwrap_err();
    says(error, r#"a cost of 8 can never pass policy "p", which lets at most 5 through at once; "#);
    assert_eq!((live.version(), live.policy("p").unwrap().limit()), (version, 10));
    for app in [&plain, &other] {
        assert_eq!(get(app, "/").await.header("ratelimit-policy").as_deref(), Some(r#""p";q=10;w=60"#));
    }
    // Without the layer, the limits fit.
    drop(expensive);
    live.replace(rate(5)).unwrap();
    assert_eq!(get(&plain, "/").await.header("ratelimit-policy").as_deref(), Some(r#""p";q=5;w=60"#));
}

#[test]
fn a_route_of_the_code_that_the_limits_have_too_is_refused() {
    let search = || limits("policies.p.rate = '10/min'\ndefault.policies = ['p']\nroutes.'/search'.cost = 2");
    let (live, layer) = following(rate(10));
    let layer = layer.route("/search", Route::new().cost(3));
    says(live.replace(search()).unwrap_err(), r#"route "/search" is in the table already "#);
    drop(layer);
    live.replace(search()).unwrap();
    let layer = live.layer(limiter(), GlobalKey).unwrap();
    says(
        layer.route("/search/", Route::new().cost(3)).validated().unwrap_err(),
        r#"route "/search/" is in the table already "#,
    );
}

#[test]
fn costs_of_the_code_need_their_policy() {
    let (live, layer) = following(rate(10));
    let layer = layer.with_cost_of("p", 2);
    let error = live.replace(limits("policies.q.rate = '10/min'\ndefault.policies = ['q']")).unwrap_err();
    says(error, r#"no policy is called "p", so its cost would never be charged; "#);
    let _ = layer;
}

#[test]
fn fail_local_needs_a_fallback_in_every_layer() {
    let local = || limits("policies.p.rate = '9/min'\ndefault = { policies = ['p'], on-store-failure = 'local' }");
    let (live, layer) = following(rate(10));
    says(live.replace(local()).unwrap_err(), "fail_local needs a limiter with a local fallback: ");
    drop(layer);
    let limiter = limiter().with_local_fallback(MemoryStore::new(), 1);
    let layer = live.layer(limiter, GlobalKey).unwrap();
    live.replace(local()).unwrap();
    says(
        live.layer(crate::support::app::limiter(), GlobalKey).unwrap_err(),
        "fail_local needs a limiter with a local fallback: ",
    );
    let _ = layer;
}

/// The layer of a `LiveLimits` that was dropped keeps its limits.
#[tokio::test]
async fn a_layer_outlives_its_limits() {
    let (live, layer) = following(rate(10));
    live.replace(rate(20)).unwrap();
    drop(live);
    let derived = app(layer.with_cost(2));
    assert_eq!(get(&derived, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=18;t=60"#));
}

/// Each change of the limits may put the layer into shadow mode by mistake.
#[tokio::test]
async fn law_13_new_limits_that_refuse_nothing_are_reported_again() {
    let recorder = Recorder::default();
    let live = LiveLimits::new(rate(1));
    let app = app(live.layer(limiter().with_observer(recorder.clone()), GlobalKey).unwrap());
    let mut reported = Vec::new();
    for shadow in [false, true, true] {
        live.replace(only(&format!("rate = '1/min'\nshadow = {shadow}"))).unwrap();
        get(&app, "/").await;
        get(&app, "/").await;
        reported.push(recorder.take().warnings.len());
    }
    assert_eq!(reported, [0, 1, 1]);
}

/// The mistake is that of the layer with these limits: other limits can correct it.
#[tokio::test]
async fn a_mistake_of_a_layer_lasts_as_long_as_the_limits_do_not_fit() {
    let (live, layer) = following(rate(5));
    let expensive = layer.with_cost(8);
    says(expensive.clone().validated().unwrap_err(), r#"a cost of 8 can never pass policy "p", "#);
    let expensive = app(expensive);
    assert_eq!(get(&expensive, "/").await.status, 500);
    says(live.replace(rate(6)).unwrap_err(), r#"a cost of 8 can never pass policy "p", "#);
    live.replace(rate(9)).unwrap();
    assert_eq!(get(&expensive, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=1;t=60"#));
}

#[tokio::test]
async fn a_wrong_setting_of_a_layer_refuses_all_limits() {
    let (live, layer) = following(rate(5));
    let wrong = app(layer.clone().route("a", Route::exempt()).and(Policy::per_minute("all", 5).unwrap(), GlobalKey));
    says(live.replace(rate(9)).unwrap_err(), r#"route "a" is not understood: "#);
    assert_eq!(get(&wrong, "/").await.status, 500);
    assert_eq!(get(&app(layer), "/").await.header("ratelimit").as_deref(), Some(r#""p";r=4;t=60"#));
}
