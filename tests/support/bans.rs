//! What a ban does to the requests of a layer, on any store.

use std::time::Duration;

use axum::Router;
use http::request::Parts;
use tollgate::{
    Algorithm, GlobalKey, Key, KeyExtractor, Limiter, ManualClock, Policy, RateLimitLayer, Route, policy::FirstOf,
};

use crate::support::{
    ALGORITHMS,
    app::{app, get_passes},
    http::get,
};

const BAN: Duration = Duration::from_secs(90);

fn policy(name: &str) -> Policy {
    Policy::per_minute(name, 2).unwrap()
}

/// The same key for all requests.
fn key(name: &str) -> impl KeyExtractor + use<> {
    let name = name.to_owned();
    move |_: &Parts| Key::from(&*name)
}

/// An application with a route, `/search`, that costs nothing under the policy `free`. All else costs 1.
fn app_with_free_route<K: KeyExtractor>(layer: RateLimitLayer<K>, free: &str) -> Router {
    app(layer.route("/search", Route::new().cost_of(free, 0)).validated().unwrap())
}

/// Asserts that requests to `/search` are refused until `retry_after`.
async fn assert_refused(app: &Router, retry_after: &str) {
    // The second one may be refused from memory.
    for _ in 0..2 {
        let refused = get(app, "/search").await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after").as_deref()), (429, Some(retry_after)));
    }
}

async fn after_denials(limiter: &Limiter, clock: &ManualClock) {
    let banning = policy("after").ban_after(1, BAN);
    let app = app_with_free_route(RateLimitLayer::new(limiter.clone(), banning.clone(), key("after")), "after");
    assert!(get_passes(&app, "/").await && get_passes(&app, "/").await);
    assert!(get_passes(&app, "/search").await, "a spent limit does not refuse what costs nothing");
    assert!(!get_passes(&app, "/").await, "the ban begins");
    for left in ["90", "60", "30"] {
        assert_refused(&app, left).await;
        assert!(limiter.check("after", &banning, 0).await.unwrap().is_allowed(), "no request of a layer");
        clock.advance(BAN / 3);
    }
    for _ in 0..9 {
        assert!(get_passes(&app, "/search").await);
    }
    assert_eq!(limiter.peek("after", &banning).await.unwrap().available(), Some(2));
}

async fn by_hand(limiter: &Limiter, clock: &ManualClock) {
    let policy = policy("hand");
    let app = app_with_free_route(RateLimitLayer::new(limiter.clone(), policy.clone(), key("hand")), "hand");
    limiter.ban("hand", &policy, BAN).await.unwrap();
    assert_refused(&app, "90").await;
    assert!(limiter.check("hand", &policy, 0).await.unwrap().is_allowed(), "no request of a layer");
    assert!(limiter.unban("hand", &policy).await.unwrap());
    assert!(get_passes(&app, "/search").await);
    limiter.ban("hand", &policy, BAN).await.unwrap();
    assert_refused(&app, "90").await;
    clock.advance(BAN);
    assert!(get_passes(&app, "/search").await);
}

/// A request that costs nothing under the policy that bans is charged under no other policy.
async fn under_one_of_several_policies(limiter: &Limiter, clock: &ManualClock, algorithm: Algorithm) {
    for is_by_hand in [true, false] {
        let name = format!("several-{is_by_hand}-{algorithm:?}");
        let (banning, other) = (policy(&name).with_algorithm(algorithm).ban_after(1, BAN), policy("other"));
        // The key of the other policy is in another slot of a cluster.
        let layer = RateLimitLayer::new(limiter.clone(), banning.clone(), key(&name)).and(other.clone(), GlobalKey);
        let app = app_with_free_route(layer, &name);
        if is_by_hand {
            limiter.ban(&*name, &banning, BAN).await.unwrap();
        } else {
            for _ in 0..3 {
                drop(limiter.check(&*name, &banning, 1).await.unwrap());
            }
        }
        assert_refused(&app, "90").await;
        assert_eq!(get(&app, "/search").await.json()["violated-policies"], serde_json::json!([name]));
        clock.advance(BAN - Duration::from_secs(1));
        assert_refused(&app, "1").await;
        clock.advance(Duration::from_secs(1));
        // Nothing was charged under the other policy in the last minute.
        assert!(get_passes(&app, "/search").await && get_passes(&app, "/search").await);
        assert!(!get_passes(&app, "/search").await);
        clock.advance(BAN);
    }
}

async fn under_alternatives(limiter: &Limiter, clock: &ManualClock) {
    let (included, credits) = (policy("included"), policy("credits"));
    let first_of = FirstOf::new([included.clone(), credits.clone()]);
    let layer = RateLimitLayer::new(limiter.clone(), first_of, key("alternatives"));
    let app = app(layer.route("/search", Route::new().cost(0)).validated().unwrap());
    limiter.ban("alternatives", &included, BAN).await.unwrap();
    assert!(get_passes(&app, "/search").await, "the credits are not banned");
    limiter.ban("alternatives", &credits, 2 * BAN).await.unwrap();
    assert_refused(&app, "90").await;
    clock.advance(BAN);
    assert!(get_passes(&app, "/search").await, "the included quota is not banned any more");
}

async fn under_shadow_policies(limiter: &Limiter, clock: &ManualClock) {
    let banning = policy("shadow").with_shadow(true).ban_after(1, BAN);
    for is_beside_another in [false, true] {
        let name = format!("shadow-{is_beside_another}");
        let mut policies = vec![banning.clone()];
        policies.extend(is_beside_another.then(|| Policy::per_minute("beside", 100).unwrap()));
        let app = app_with_free_route(RateLimitLayer::new(limiter.clone(), policies, key(&name)), "shadow");
        for _ in 0..5 {
            assert!(get_passes(&app, "/").await && get_passes(&app, "/search").await);
        }
        limiter.ban(&*name, &banning, BAN).await.unwrap();
        for _ in 0..3 {
            assert!(get_passes(&app, "/").await && get_passes(&app, "/search").await);
        }
        clock.advance(BAN);
    }
}

/// Requests of a layer that cost nothing are refused during each kind of ban, and pass before and after it.
pub(crate) async fn bans_refuse_requests_that_cost_nothing(limiter: &Limiter, clock: &ManualClock) {
    after_denials(limiter, clock).await;
    by_hand(limiter, clock).await;
    for algorithm in ALGORITHMS {
        under_one_of_several_policies(limiter, clock, algorithm).await;
    }
    under_alternatives(limiter, clock).await;
    under_shadow_policies(limiter, clock).await;
}
