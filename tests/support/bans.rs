//! What a ban does to the requests of a layer, on any store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::{Router, http::StatusCode, routing::post};
use http::{Request, request::Parts, response};
use tokio::task::JoinSet;
use tollgate::{
    Algorithm, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, ManualClock, Policy, RateLimitLayer, Route,
    middleware::Settlement,
    policy::{FirstOf, HoldSettings},
};

use crate::support::ALGORITHMS;
use crate::support::app::{app, get_passes};
use crate::support::http::{Reply, get, send};

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

/// A service that checks passwords: five failures of an account in a quarter of an hour, then an hour without attempts.
struct Logins {
    app: Router,
    limiter: Limiter,
    /// The attempts whose password was compared.
    judged: Arc<AtomicUsize>,
}

fn login_policy() -> Policy {
    Policy::new("logins", 5, Duration::from_secs(900))
        .unwrap()
        .with_holds(HoldSettings::new())
        .ban_after(1, Duration::from_secs(3_600))
}

impl Logins {
    fn new(limiter: &Limiter) -> Self {
        let judged = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&judged);
        let login = move |password: String| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                // As long as a hash takes.
                tokio::time::sleep(Duration::from_millis(5)).await;
                if password == "right" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
            }
        };
        let failed = |response: &response::Parts| match response.status {
            StatusCode::UNAUTHORIZED => Settlement::Held,
            _ => Settlement::Nothing,
        };
        let account = HeaderKey::new("x-account").unwrap();
        let limit = RateLimitLayer::new(limiter.clone(), login_policy(), account).with_settlement(failed);
        let app = Router::new().route("/login", post(login)).layer(limit.fail_closed().validated().unwrap());
        Self { app, limiter: limiter.clone(), judged }
    }

    async fn attempt(app: &Router, account: &str, password: &'static str) -> Reply {
        let request = Request::post("/login").header("x-account", account);
        send(app, request.body(password.into()).unwrap()).await
    }

    /// Waits until the account has this number of attempts left: the last ones are settled.
    async fn settled(&self, account: &str, left: u64) {
        let started = Instant::now();
        while self.limiter.peek(account, &login_policy()).await.unwrap().available() != Some(left) {
            assert!(started.elapsed() < Duration::from_secs(10), "{left} attempts of {account} are not left");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The statuses of attempts, one after the other. The account has failed none before.
    async fn statuses(&self, account: &str, passwords: &[&'static str]) -> Vec<u16> {
        let (mut statuses, mut left) = (Vec::new(), 5);
        for password in passwords {
            let status = Self::attempt(&self.app, account, password).await.status.as_u16();
            left -= u64::from(status == 401);
            self.settled(account, if status == 429 { 0 } else { left }).await;
            statuses.push(status);
        }
        statuses
    }
}

/// Five failures in a row, whatever succeeds between them, and an hour later the account is free.
pub(crate) async fn five_failed_logins_then_an_hour(limiter: &Limiter, clock: &ManualClock) {
    let logins = Logins::new(limiter);
    let passwords = ["right", "wrong", "wrong", "right", "wrong", "wrong", "right", "right", "right", "wrong", "right"];
    let statuses = logins.statuses("ann", &passwords).await;
    assert_eq!(statuses, [200, 401, 401, 200, 401, 401, 200, 200, 200, 401, 429], "the right password comes too late");
    for minutes in [60, 30, 1] {
        let refused = Logins::attempt(&logins.app, "ann", "right").await;
        let retry_after = (minutes * 60).to_string();
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some(retry_after)));
        let until_next = if minutes == 60 { 30 } else { 29 };
        clock.advance(Duration::from_secs(if minutes == 1 { 60 } else { until_next * 60 }));
    }
    assert_eq!(logins.statuses("ann", &["right", "wrong"]).await, [200, 401]);
    assert_eq!(logins.statuses("bob", &["right"]).await, [200]);
}

/// Many attempts at once, of which no more than five are judged in an hour.
pub(crate) async fn many_logins_at_once(limiter: &Limiter, clock: &ManualClock) {
    let logins = Logins::new(limiter);
    let mut attempts = JoinSet::new();
    for _ in 0..200 {
        let app = logins.app.clone();
        attempts.spawn(async move { Logins::attempt(&app, "ann", "wrong").await.status.as_u16() });
    }
    let mut statuses = attempts.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses[..5], [401; 5]);
    assert_eq!(statuses[5..], [429; 195]);
    assert_eq!(logins.judged.load(Ordering::SeqCst), 5);
    clock.advance(Duration::from_secs(3_599));
    assert_eq!(logins.statuses("ann", &["right"; 5]).await, [429; 5]);
    assert_eq!(logins.judged.load(Ordering::SeqCst), 5);
    clock.advance(Duration::from_secs(1));
    assert_eq!(logins.statuses("ann", &["right"]).await, [200]);
}

/// A settlement with more units than were held, and than fit, is a denial; one that fits is none.
pub(crate) async fn settlements_that_do_not_fit_are_denials(limiter: &Limiter, clock: &ManualClock) {
    for algorithm in ALGORITHMS {
        let tokens = Policy::per_minute(format!("tokens-{algorithm:?}"), 100).unwrap().with_algorithm(algorithm);
        let tokens = tokens.with_holds(HoldSettings::new()).ban_after(2, BAN);
        let hold = async |units| limiter.hold("k", &tokens, units).await.unwrap().into_result().unwrap();
        let ban = async || limiter.peek("k", &tokens).await.unwrap().policies()[0].ban;
        hold(10).await.settle(90).await.unwrap();
        hold(10).await.settle(10).await.unwrap();
        assert_eq!(limiter.peek("k", &tokens).await.unwrap().available(), Some(0));
        clock.advance(Duration::from_secs(600));
        let (beside, late) = (hold(9).await, hold(1).await);
        hold(10).await.settle(91).await.unwrap();
        assert_eq!(ban().await, None, "{algorithm:?}: one denial");
        beside.settle(8).await.unwrap();
        assert_eq!(ban().await, None, "{algorithm:?}: 99 and less than was held");
        assert!(!limiter.hold("k", &tokens, 1).await.unwrap().is_allowed());
        assert_eq!(ban().await, Some(BAN), "{algorithm:?}: another denial");
        clock.advance(Duration::from_secs(30));
        late.settle(1_000).await.unwrap();
        assert_eq!(ban().await, Some(BAN - Duration::from_secs(30)), "{algorithm:?}: a ban is not prolonged");
        assert!(!limiter.hold("k", &tokens, 1).await.unwrap().is_allowed());
        // The units of the last settlement leave a bucket last.
        clock.advance(Duration::from_secs(3_600));
        let held = hold(100).await;
        hold_is_banned_by_settlement(limiter, &tokens, held).await;
        clock.advance(Duration::from_secs(3_600));
        // The first request after a ban by hand is the settlement.
        let held = hold(100).await;
        limiter.ban("k", &tokens, BAN / 3).await.unwrap();
        clock.advance(BAN / 3);
        hold_is_banned_by_settlement(limiter, &tokens, held).await;
        clock.advance(Duration::from_secs(3_600));
        // What fits beside the other holds is no denial, and neither is what was held, although it does not fit.
        let (beside, held) = (hold(9).await, hold(10).await);
        held.settle(91).await.unwrap();
        limiter.record("k", &tokens, 1).await.unwrap();
        beside.settle(9).await.unwrap();
        assert!(!limiter.hold("k", &tokens, 1).await.unwrap().is_allowed());
        assert_eq!(ban().await, None, "{algorithm:?}: one denial");
        clock.advance(Duration::from_secs(3_600));
    }
}

/// Two settlements ban.
async fn hold_is_banned_by_settlement(limiter: &Limiter, tokens: &Policy, held: tollgate::limiter::Hold) {
    held.settle(101).await.unwrap();
    let banned = async || limiter.peek("k", tokens).await.unwrap().policies()[0].ban.is_some();
    assert!(!banned().await);
    assert!(!limiter.hold("k", tokens, 1).await.unwrap().is_allowed());
    assert!(banned().await);
}
