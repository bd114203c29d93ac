//! What a file means: the same as the builder methods.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use tollgate::{
    Algorithm, Calendar, ConfigError, GlobalKey, HeaderStyle, Limiter, MemoryStore, Policy, RateLimitLayer, Route,
    limits::LimitsConfig,
    policy::{HoldSettings, Weekday},
};
use tower::ServiceExt;

use super::{check, with_policy};
use crate::support::app::{app, down_limiter, limiter};
use crate::support::http::{request, send};
use crate::support::says;

#[test]
fn every_field_of_a_policy_is_a_builder_method() {
    let limits = check(
        r#"
            default.policies = ["a"]
            [policies]
            a = { rate = "60/min" }
            b = { limit = 7, window = "1500ms", algorithm = "counter", count-rejected = true, unit = "content-bytes" }
            c = { rate = "9/hour", algorithm = "token-bucket", burst = 3, shadow = true, near-limit = 0.5 }
            d = { rate = "9/2h", resolution = "1m", ban-after = { denials = 20, for = "10m", growing-to = "1d" }, near-limit = false }
            e = { rate = "9/day", algorithm = "fixed", shards = 3, unit = "requests", near-limit = 1 }
            f = { rate = "9/day", holds = true, lease = 4 }
            g = { rate = "9/day", holds = { ttl = "10m", typical = "5s", unsettled = "release" }, in-code = true }
            h = { concurrent = 3, shadow = true }
            i = { concurrent = 3, holds = { ttl = "10m", unsettled = "release" }, unit = "streams" }
            j = { rate = "9/day", lease = 9, holds = {} }
            k = { rate = "9/day", holds = false }
            l = { limit = 9, calendar = "month", starts = "15 09:00", zone = "Europe/Berlin", shards = 3 }
            m = { limit = 9, calendar = "week", starts = "sunday", zone = "-03:00" }
            n = { limit = 9, calendar = "year", starts = "04-01 18:30" }
            o = { limit = 9, calendar = "day" }
            p = { rate = "9/day", holds = { unsettled = "charge" } }
        "#,
    )
    .unwrap();
    let secs = Duration::from_secs;
    let built = [
        Policy::per_minute("a", 60),
        Policy::new("b", 7, Duration::from_millis(1_500))
            .map(|b| b.with_algorithm(Algorithm::SlidingWindowCounter).with_denials_counted(true))
            .map(|b| b.with_unit("content-bytes")),
        Policy::per_hour("c", 9)
            .map(|c| c.with_algorithm(Algorithm::TokenBucket).with_burst(3))
            .map(|c| c.with_shadow(true).with_near_limit(0.5)),
        Policy::new("d", 9, secs(7_200))
            .map(|d| d.with_resolution(secs(60)))
            .map(|d| d.ban_after(20, secs(600)).growing_to(secs(86_400)))
            .map(|policy| policy.with_near_limit(None)),
        Policy::per_day("e", 9)
            .map(|e| e.with_algorithm(Algorithm::FixedWindow).with_shards(3))
            .map(|e| e.with_near_limit(1.0)),
        Policy::per_day("f", 9).map(|f| f.with_holds(HoldSettings::new())).map(|f| f.with_lease(4)),
        Policy::per_day("g", 9).map(|g| {
            let holds = HoldSettings::new().with_ttl(secs(600)).with_typical_duration(secs(5));
            g.with_holds(holds.with_unsettled_released(true))
        }),
        Policy::concurrent("h", 3).map(|h| h.with_shadow(true)),
        Policy::concurrent("i", 3)
            .map(|i| i.with_holds(HoldSettings::new().with_ttl(secs(600))))
            .map(|i| i.with_unit("streams")),
        Policy::per_day("j", 9).map(|j| j.with_lease(9)),
        Policy::per_day("k", 9),
        Policy::calendar("l", 9, Calendar::monthly().on_day(15).at(9, 0).zone("Europe/Berlin"))
            .map(|l| l.with_shards(3)),
        Policy::calendar("m", 9, Calendar::weekly().on(Weekday::Sunday).zone("-03:00")),
        Policy::calendar("n", 9, Calendar::yearly().in_month(4).on_day(1).at(18, 30)),
        Policy::calendar("o", 9, Calendar::daily()),
        Policy::per_day("p", 9).map(|p| p.with_holds(HoldSettings::new())),
    ];
    let built: Vec<Policy> = built.into_iter().map(Result::unwrap).collect();
    assert_eq!(limits.policies().cloned().collect::<Vec<_>>(), built);
    assert_eq!(limits.policy("B"), Some(&built[1]), "the case of a name is ignored");
    assert_eq!(limits.policy("z"), None);
}

#[test]
fn a_calendar_starts_on_a_day_at_a_time_or_both() {
    let read = |calendar: &str, starts: &str| {
        let fields = format!("limit = 9, calendar = '{calendar}', starts = '{starts}'");
        check(&with_policy(&format!("policies.q = {{ {fields} }}"))).map(|limits| limits.policy("q").cloned())
    };
    for (calendar, starts, built) in [
        ("day", "09:00", Calendar::daily().at(9, 0)),
        ("month", "5", Calendar::monthly().on_day(5)),
        ("year", "12-31", Calendar::yearly().in_month(12).on_day(31)),
    ] {
        assert_eq!(read(calendar, starts), Ok(Policy::calendar("q", 9, built).ok()), "{starts}");
    }
    for (calendar, starts) in [("day", "monday"), ("week", "+9:00"), ("month", "009"), ("year", "4-1")] {
        says(read(calendar, starts).unwrap_err(), &format!("{starts:?} is not a start of a {calendar}; "));
    }
}

/// Answers to a series of requests: status and fields.
async fn answers(layer: RateLimitLayer<GlobalKey>) -> Vec<(StatusCode, Vec<(String, String)>)> {
    let app = app(layer);
    let mut answers = Vec::new();
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/search"),
        (Method::GET, "/healthz"),
        (Method::POST, "/login"),
        (Method::GET, "/login"),
        (Method::POST, "/login"),
        (Method::GET, "/search/"),
        (Method::GET, "/users/7"),
    ] {
        let reply = send(&app, request(method, path, &[])).await;
        let fields = reply.headers.iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        answers.push((reply.status, fields));
    }
    answers
}

const TWIN: &str = r#"
    headers = "x-ratelimit"
    [policies]
    per-client = { rate = "6/min" }
    tokens = { rate = "100/min" }
    login = { rate = "1/min", count-rejected = true }
    [default]
    policies = ["per-client", "tokens"]
    cost = 2
    costs = { tokens = 7 }
    on-store-failure = "closed"
    [routes."/search"]
    cost = 3
    costs = { Tokens = 40 }
    [routes."POST /login"]
    policies = ["login"]
    cost = 1
    on-store-failure = "open"
    [routes."/healthz"]
    exempt = true
"#;

/// The layer of [`TWIN`] by builder methods.
fn twin(limiter: Limiter) -> Result<RateLimitLayer<GlobalKey>, ConfigError> {
    let policies = [Policy::per_minute("per-client", 6)?, Policy::per_minute("tokens", 100)?];
    let login = Policy::per_minute("login", 1)?.with_denials_counted(true);
    RateLimitLayer::new(limiter, policies, GlobalKey)
        .with_headers(HeaderStyle::XRateLimitDelta)
        .fail_closed()
        .with_cost_of("tokens", 7)
        .with_cost(2)
        .route("/search", Route::new().cost(3).cost_of("tokens", 40))
        .route("POST /login", Route::new().policies(login).cost(1).fail_open())
        .route("/healthz", Route::exempt())
        .validated()
}

#[tokio::test]
async fn a_file_and_its_twin_in_code_answer_the_same() {
    let limits = check(TWIN).unwrap();
    for limiter in [limiter as fn() -> Limiter, down_limiter] {
        let of_file = answers(limits.layer(limiter(), GlobalKey).unwrap()).await;
        assert_eq!(of_file, answers(twin(limiter()).unwrap()).await);
        let statuses: Vec<u16> = of_file.iter().map(|(status, _)| status.as_u16()).collect();
        let denied = statuses.iter().filter(|&&status| status == 429 || status == 503).count();
        assert!(denied > 1 && denied < statuses.len() - 1, "one-sided: {statuses:?}");
    }
}

#[test]
fn the_order_and_the_format_of_a_file_have_no_meaning() {
    let limits = check(TWIN).unwrap();
    let value: toml::Table = toml::from_str(TWIN).unwrap();
    let json = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<LimitsConfig>(&json).unwrap(), limits, "sorted by key, as JSON");
    assert_eq!(serde_json::from_str::<LimitsConfig>(&json.replacen('{', r#"{"$schema": "x", "#, 1)).unwrap(), limits);
    assert_ne!(check(&TWIN.replace("cost = 3", "cost = 4")).unwrap(), limits);
}

/// The plain cost of the default is above the limit of a policy that has a cost of its own.
#[test]
fn a_cost_of_a_policy_precedes_the_plain_cost() {
    let file = r#"
        policies.p.rate = "60/min"
        policies.small.rate = "5/min"
        default = { policies = ["p", "small"], cost = 50, costs = { small = 1 } }
        routes."/a" = { policies = ["p"], cost = 60 }
    "#;
    let _ = check(file).unwrap().layer(limiter(), GlobalKey).unwrap();
}

#[test]
fn a_local_failure_policy_needs_a_fallback() {
    for text in ["default.on-store-failure = \"local\"", "routes.\"/a\".on-store-failure = \"local\""] {
        let limits = check(&with_policy(text)).unwrap();
        let error = limits.layer(limiter(), GlobalKey).unwrap_err();
        says(error, "fail_local needs a limiter with a local fallback: ");
        let with_fallback = limiter().with_local_fallback(MemoryStore::new(), 2);
        let _ = limits.layer(with_fallback, GlobalKey).unwrap();
    }
}

#[tokio::test]
async fn a_concurrency_limit_of_a_file_is_free_when_the_response_has_ended() {
    let limits = check("policies.streams.concurrent = 2\ndefault.policies = [\"streams\"]").unwrap();
    let app = app(limits.layer(limiter(), GlobalKey).unwrap());
    let get = || app.clone().oneshot(request(Method::GET, "/", &[]));
    let (first, second) = (get().await.unwrap(), get().await.unwrap());
    let third = get().await.unwrap();
    let statuses = [&first, &second, &third].map(|response| response.status().as_u16());
    assert_eq!(statuses, [200, 200, 429], "two responses have not ended");
    drop(first);
    assert_eq!(get().await.unwrap().status(), StatusCode::OK);
}

#[test]
fn every_header_style_has_a_word() {
    let words = ["draft-11", "draft-07", "draft-06", "draft-03", "x-ratelimit", "x-ratelimit-epoch", "envoy"];
    for word in words.into_iter().chain(["tower-governor", "openai", "none"]) {
        check(&with_policy(&format!("headers = \"{word}\""))).unwrap();
    }
}
