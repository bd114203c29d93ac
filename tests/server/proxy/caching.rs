//! Caches between clients and the application: a refusal is for one client and one time.

use std::{sync::Arc, time::Duration};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate::{Error, ErrorKind, HeaderStyle, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::front::{Lines, Proxy};
use super::site::{Site, behind_the_proxy, routes};
use crate::support::{FlakyStore, http::Reply};

const CACHE: Lines = Lines::Cache(HeaderStyle::Draft11);

/// A style, how its first field tells what is left, the fields that tell what a client has left, and the policy
type Style = (HeaderStyle, &'static str, &'static [&'static str], &'static [&'static str]);

const STYLES: [Style; 6] = [
    (HeaderStyle::Draft11, ";r={};", &["ratelimit"], &["ratelimit-policy"]),
    (HeaderStyle::Draft07, " remaining={},", &["ratelimit"], &["ratelimit-policy"]),
    (HeaderStyle::Draft06, "{}", &["ratelimit-remaining", "ratelimit-reset"], &["ratelimit-limit", "ratelimit-policy"]),
    (HeaderStyle::Draft03, "{}", &["ratelimit-remaining", "ratelimit-reset"], &["ratelimit-limit"]),
    (HeaderStyle::XRateLimitDelta, "{}", &["x-ratelimit-remaining", "x-ratelimit-reset"], &["x-ratelimit-limit"]),
    (HeaderStyle::TowerGovernorCompat, "{}", &["x-ratelimit-remaining"], &["x-ratelimit-limit"]),
];

/// The caches keep each response that they may, also those without a Cache-Control.
async fn start(proxy: Proxy) -> Option<Site> {
    Site::start(behind_the_proxy(), proxy, CACHE).await
}

/// Spends all units.
async fn spend(caller: &mut Caller) {
    for _ in 0..BUDGET {
        assert_eq!(caller.get("/", &[]).await.status, 200);
    }
}

async fn a_refusal_is_not_served_again(proxy: Proxy) {
    let Some(site) = start(proxy).await else { return };
    let (mut alice, mut bob) = (site.caller(ALICE).await, site.caller(BOB).await);
    spend(&mut alice).await;
    let refusal = alice.get("/kept?later", &[]).await;
    assert_eq!(refusal.status, 429);
    assert_eq!(alice.get("/kept", &[]).await.status, 429);
    assert_eq!(bob.get("/kept", &[]).await.status, 200, "Bob got the refusal of Alice");

    let wait: u64 = refusal.header("retry-after").unwrap().parse().unwrap();
    site.clock.advance(Duration::from_secs(wait));
    assert_eq!(alice.get("/kept?later", &[]).await.status, 200, "Alice got her refusal again");
}

#[tokio::test]
async fn nginx_serves_no_refusal_from_its_cache() {
    a_refusal_is_not_served_again(Proxy::Nginx).await;
}

#[tokio::test]
async fn varnish_serves_no_refusal_from_its_cache() {
    a_refusal_is_not_served_again(Proxy::Varnish).await;
}

/// The control of the test above: the cache of nginx is set up so that it keeps a 429 that does not forbid it.
#[tokio::test]
async fn nginx_keeps_a_429_without_cache_control() {
    let Some(site) = start(Proxy::Nginx).await else { return };
    let mut alice = site.caller(ALICE).await;
    for _ in 0..3 {
        assert_eq!(alice.get("/busy", &[]).await.status, 429);
    }
    // Only the first of them was charged.
    assert!(alice.get("/", &[]).await.header("ratelimit").unwrap().contains(&format!(";r={};", BUDGET - 2)));
}

async fn a_response_from_the_cache_costs_nothing_and_tells_nobody_what_another_has_left(proxy: Proxy) {
    for (style, form, of_the_client, of_the_policy) in STYLES {
        let Some(site) = Site::start(behind_the_proxy(), proxy, Lines::Cache(style)).await else { return };
        let (mut alice, mut bob) = (site.caller(ALICE).await, site.caller(BOB).await);
        let shows = |reply: &Reply, left: usize| {
            let fields: Vec<String> = of_the_client.iter().filter_map(|name| reply.header(name)).collect();
            fields.len() == of_the_client.len() && fields[0].contains(&form.replace("{}", &left.to_string()))
        };
        let fetched = alice.get("/kept", &[]).await;
        assert!(shows(&fetched, BUDGET - 1), "{style}: {fetched:?}");
        for caller in [&mut alice, &mut bob] {
            let kept = caller.get("/kept", &[]).await;
            assert_eq!((kept.status.as_u16(), kept.text()), (200, "kept"));
            assert!(of_the_client.iter().all(|name| kept.header(name).is_none()), "{style}: {kept:?}");
            assert!(of_the_policy.iter().all(|name| kept.header(name) == fetched.header(name)), "{style}: {kept:?}");
            assert!(kept.header(of_the_policy[0]).is_some(), "{style}: {kept:?}");
        }
        for (caller, left) in [(&mut alice, BUDGET - 2), (&mut bob, BUDGET - 1)] {
            let reply = caller.get("/", &[]).await;
            assert!(shows(&reply, left), "{style}: {reply:?}");
        }
        let posted = alice.post("/").await;
        assert!(shows(&posted, BUDGET - 3), "{style}: {posted:?}");
    }
}

#[tokio::test]
async fn a_response_from_the_cache_of_nginx_costs_nothing_and_tells_nobody_what_another_has_left() {
    a_response_from_the_cache_costs_nothing_and_tells_nobody_what_another_has_left(Proxy::Nginx).await;
}

#[tokio::test]
async fn a_response_from_the_cache_of_varnish_costs_nothing_and_tells_nobody_what_another_has_left() {
    a_response_from_the_cache_costs_nothing_and_tells_nobody_what_another_has_left(Proxy::Varnish).await;
}

async fn the_refusals_of_an_outage_end_with_it(proxy: Proxy) {
    let store = FlakyStore::default();
    let policy = Policy::per_minute("p", 10).unwrap();
    let layer = RateLimitLayer::new(Limiter::new(store.clone()), policy, behind_the_proxy()).fail_closed();
    let Some(site) = Site::serving(routes().layer(layer), ManualClock::default(), proxy, CACHE).await else {
        return;
    };
    let mut alice = site.caller(ALICE).await;
    store.fail(Some(Error::new(ErrorKind::Unavailable, "down")));
    assert_eq!(alice.get("/kept", &[]).await.status, 503);
    store.fail(None);
    assert_eq!(alice.get("/kept", &[]).await.status, 200);
}

#[tokio::test]
async fn refusals_of_an_outage_end_with_it_behind_the_cache_of_nginx() {
    the_refusals_of_an_outage_end_with_it(Proxy::Nginx).await;
}

#[tokio::test]
async fn refusals_of_an_outage_end_with_it_behind_the_cache_of_varnish() {
    the_refusals_of_an_outage_end_with_it(Proxy::Varnish).await;
}

/// Keeps refusals back until it is opened.
#[derive(Clone, Default)]
struct Gate {
    reached: Arc<Notify>,
    opened: Arc<Notify>,
}

async fn keep_refusals_back(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status() == 429 {
        gate.reached.notify_one();
        gate.opened.notified().await;
    }
    response
}

/// A cache sends one of two requests for the same page, and answers both with the response if it may.
async fn a_client_who_waits_for_the_request_of_another_is_not_refused(proxy: Proxy) {
    let (gate, clock) = (Gate::default(), ManualClock::default());
    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    let policy = Policy::per_minute("p", u64::try_from(BUDGET).unwrap()).unwrap();
    let router = routes()
        .layer(RateLimitLayer::new(limiter, policy, behind_the_proxy()))
        .layer(from_fn_with_state(gate.clone(), keep_refusals_back));
    let Some(site) = Site::serving(router, clock, proxy, CACHE).await else { return };
    let (mut alice, mut bob) = (site.caller(ALICE).await, site.caller(BOB).await);
    spend(&mut alice).await;
    let refused = tokio::spawn(async move { alice.get("/kept", &[]).await.status });
    let reached = timeout(Duration::from_secs(10), gate.reached.notified()).await;
    assert!(reached.is_ok(), "Alice was not refused");
    let waiting = tokio::spawn(async move { bob.get("/kept", &[]).await.status });
    // Nothing tells when the proxy has let Bob wait. Too short a time would only make the test weaker.
    sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished(), "{proxy:?} did not let Bob wait, so the test shows nothing");
    gate.opened.notify_one();
    assert_eq!(refused.await.unwrap(), 429);
    assert_eq!(waiting.await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_whom_nginx_lets_wait_for_the_request_of_another_is_not_refused() {
    a_client_who_waits_for_the_request_of_another_is_not_refused(Proxy::Nginx).await;
}

#[tokio::test]
async fn a_client_whom_varnish_lets_wait_for_the_request_of_another_is_not_refused() {
    a_client_who_waits_for_the_request_of_another_is_not_refused(Proxy::Varnish).await;
}
