//! Holds that reach their longest age while their requests go on.

use std::{convert::Infallible, future::pending, sync::Mutex};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant, sleep};
use tollgate::middleware::{Bill, HeldTooLong, HoldGuard};
use tollgate::observe::{Event, Observer, Warning};
use tollgate::rejection::{Denial, Reason};
use tollgate::{GrpcStatus, Limiter, MemoryStore, Policy, RateLimitLayer, clock::TokioClock, policy::HoldSettings};
use tower::{Layer, ServiceExt, service_fn};

use super::*;

const LONGEST: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// The policy, the cost and the way of an end.
type End = (String, u64, &'static str);

/// Remembers how holds ended, and warnings.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<(Vec<End>, Vec<Warning>)>>);

impl Seen {
    fn ends(&self) -> Vec<End> {
        self.0.lock().unwrap().0.clone()
    }

    fn too_long(&self) -> usize {
        let is_too_long = |warning: &&Warning| warning.cause() == "held_too_long";
        self.0.lock().unwrap().1.iter().filter(is_too_long).count()
    }
}

impl Observer for Seen {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(actual) = event.number("actual") {
            let ended = event.charges().map(|(_, policy, _)| (policy.name().to_owned(), actual, event.outcome()));
            self.0.lock().unwrap().0.extend(ended);
        }
        self.0.lock().unwrap().1.extend(event.warning().cloned());
    }
}

fn stage() -> (Limiter, Seen) {
    let seen = Seen::default();
    (Limiter::new(MemoryStore::new().with_clock(TokioClock::new())).with_observer(seen.clone()), seen)
}

fn one_slot() -> Policy {
    Policy::concurrent("one", 1).unwrap().with_holds(HoldSettings::new().with_longest(LONGEST))
}

fn aging_tokens(released: bool) -> Policy {
    tokens().with_holds(HoldSettings::new().with_longest(LONGEST).with_unsettled_released(released))
}

/// As `/`, but its handler never answers.
fn app(limiter: &Limiter, policy: Policy) -> Router {
    let stream = || async { Body::new(Frames::of(["a"]).then_stays_open()) };
    Router::new()
        .route("/", get(stream))
        .route("/never", get(|| async { pending::<()>().await }))
        .layer(RateLimitLayer::new(limiter.clone(), policy, one_client()).fail_closed())
}

async fn get_from(app: &Router, path: &str) -> Response<Body> {
    app.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
}

/// The server does not ask for more of the body, because its client does not read.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_keeps_its_slot_no_longer_than_the_longest_age() {
    let (limiter, seen) = stage();
    let app = app(&limiter, one_slot());
    let mut unread = get_from(&app, "/").await.into_body();
    sleep(LONGEST - SECOND).await;
    assert_eq!(get_from(&app, "/").await.status(), 429, "renewed until then");
    sleep(SECOND + Duration::from_millis(10)).await;
    let other = get_from(&app, "/").await;
    assert_eq!(other.status(), 200);
    assert_eq!(seen.ends(), [("one".to_owned(), 0, "too_long")]);
    // When the client reads at last, its response is cut off.
    let error = unread.frame().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("longer than the 600s"), "{error}");
    assert!(unread.frame().await.is_none());
    drop(unread);
    assert_eq!(get_from(&app, "/").await.status(), 429, "the slot of the other is not given back");
    drop(other);
    assert_eq!(get_from(&app, "/").await.status(), 200);
    let ends = seen.ends().into_iter().map(|(_, _, end)| end).collect::<Vec<_>>();
    assert_eq!(ends, ["too_long", "released", "released"], "each hold ends once");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_waits_fails_at_the_longest_age() {
    let (limiter, _) = stage();
    let app = app(&limiter, one_slot());
    let start = Instant::now();
    let mut body = get_from(&app, "/").await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
    assert!(body.frame().await.unwrap().is_err());
    assert!(start.elapsed() - LONGEST <= Duration::from_millis(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_gets_504_at_the_longest_age_and_its_handler_is_dropped() {
    let (limiter, seen) = stage();
    let app = app(&limiter, one_slot());
    let start = Instant::now();
    for number in 1..=3 {
        let response = get_from(&app, "/never").await;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert!(start.elapsed() - number * LONGEST <= Duration::from_millis(30), "{:?}", start.elapsed());
        let denial = response.extensions().get::<Denial>().unwrap();
        assert_eq!(denial.reason(), Reason::HeldTooLong);
        assert!(denial.to_string().contains(r#""one""#), "{denial}");
        assert_eq!(denial.retry_after(), None);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("Gateway Timeout") && text.contains("600s"), "{text}");
    }
    assert_eq!(seen.ends().len(), 3);
    assert_eq!(seen.too_long(), 1, "reported once");
}

#[tokio::test(start_paused = true)]
async fn grpc_clients_see_an_exceeded_deadline() {
    let (limiter, _) = stage();
    let limit = RateLimitLayer::new(limiter, one_slot(), one_client()).with_rejection(GrpcStatus::default());
    let never = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    let call = Request::post("/a.B/C").version(http::Version::HTTP_2).header("content-type", "application/grpc");
    let response = limit.layer(never).oneshot(call.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        (&response.headers()["grpc-status"], response.status()),
        (&HeaderValue::from_static("4"), StatusCode::OK)
    );
}

#[tokio::test(start_paused = true)]
async fn the_bill_as_it_stands_is_charged_at_the_longest_age() {
    // Before the response, the policy decides about a bill without a cost. After it, what is held is charged.
    for (released, cost, answers, charged) in [
        (false, Some(30), true, 30),
        (false, Some(30), false, 30),
        (false, None, true, 100),
        (true, None, true, 100),
        (true, None, false, 0),
    ] {
        let (limiter, seen) = stage();
        // In the longest age, a minute and more has passed, so a day is asked.
        let policy = Policy::per_day("tokens", 1_000).unwrap().with_holds(*aging_tokens(released).holds().unwrap());
        let bills = Arc::new(Mutex::new(None));
        let service = {
            let bills = Arc::clone(&bills);
            service_fn(move |request: Request<Body>| {
                let bill = request.extensions().get::<Bill>().unwrap().clone();
                cost.into_iter().for_each(|cost| bill.set_cost(cost));
                *bills.lock().unwrap() = Some(bill);
                async move {
                    if !answers {
                        pending::<()>().await;
                    }
                    Ok::<_, Infallible>(Response::new(Frames::of(["a"]).then_stays_open()))
                }
            })
        };
        let limit = RateLimitLayer::new(limiter.clone(), policy.clone(), one_client()).with_cost(100);
        let response = tokio::spawn(limit.with_settlement(at_end).with_held_body().layer(service).oneshot(request()));
        sleep(LONGEST - SECOND).await;
        assert_eq!(left(&limiter, &policy).await, 900);
        sleep(2 * SECOND).await;
        assert_eq!(left(&limiter, &policy).await, 1_000 - charged, "{released:?}, {cost:?}, {answers}");
        // Later costs change nothing, and neither does the end of the request.
        bills.lock().unwrap().take().unwrap().set_cost(500);
        let mut body = response.await.unwrap().unwrap().into_body();
        if answers {
            let error = body.frame().await.unwrap().unwrap_err();
            let too_long = error.downcast_ref::<HeldTooLong>().unwrap().to_string();
            assert!(too_long.contains(r#"policy "tokens" holds"#), "{too_long}");
        }
        drop(body);
        settle_in_background().await;
        assert_eq!(left(&limiter, &policy).await, 1_000 - charged);
        assert_eq!(seen.ends(), [("tokens".to_owned(), charged, "too_long")]);
    }
}

/// What the layer cannot end: upgraded connections, and work with a guard.
#[tokio::test(start_paused = true)]
async fn upgrades_and_guards_hold_nothing_beyond_the_longest_age() {
    let (limiter, seen) = stage();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let upgrade = |kept: Arc<Mutex<Vec<HoldGuard>>>| {
        move |guard: HoldGuard| {
            kept.lock().unwrap().push(guard);
            async { StatusCode::SWITCHING_PROTOCOLS }
        }
    };
    let work = |kept: Arc<Mutex<Vec<HoldGuard>>>| {
        move |guard: HoldGuard| {
            kept.lock().unwrap().push(guard);
            async {}
        }
    };
    let app = Router::new()
        .route("/upgrade", get(upgrade(Arc::clone(&kept))))
        .route("/work", get(work(Arc::clone(&kept))))
        .layer(RateLimitLayer::new(limiter.clone(), one_slot(), one_client()).fail_closed());
    for path in ["/upgrade", "/work"] {
        drop(get_from(&app, path).await);
        sleep(LONGEST - SECOND).await;
        assert_eq!(get_from(&app, path).await.status(), 429, "{path}");
        sleep(2 * SECOND).await;
        assert_eq!(left(&limiter, &one_slot()).await, 1, "{path}");
    }
    kept.lock().unwrap().clear();
    settle_in_background().await;
    assert!(seen.ends().iter().all(|(_, _, end)| *end == "too_long"), "{:?}", seen.ends());
    assert_eq!(seen.ends().len(), 2, "the guards end nothing twice");
}

#[tokio::test(start_paused = true)]
async fn a_shadow_policy_ends_no_request() {
    let (limiter, seen) = stage();
    let app = app(&limiter, one_slot().with_shadow(true));
    let mut body = get_from(&app, "/").await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(tokio::time::timeout(2 * LONGEST, body.frame()).await.is_err(), "it goes on");
    assert_eq!(seen.ends(), [("one".to_owned(), 0, "too_long")]);
}

/// The process cannot renew the slot, so the store has given it to another one.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_lost_its_slot_ends_at_the_longest_age_too() {
    let ledger = Ledger { store: MemoryStore::new().with_clock(TokioClock::new()), ..Ledger::default() };
    let limiter = ledger.limiter();
    let app = app(&limiter, one_slot());
    let mut body = get_from(&app, "/").await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    ledger.fail_changes(true);
    sleep(100 * SECOND).await;
    ledger.fail_changes(false);
    let start = Instant::now();
    assert!(body.frame().await.unwrap().is_err());
    assert!(start.elapsed() <= LONGEST - 99 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_job_is_not_renewed_beyond_the_longest_age() {
    let (limiter, seen) = stage();
    let slot = limiter.hold(CLIENT, &one_slot(), 1).await.unwrap().into_result().unwrap();
    sleep(LONGEST).await;
    assert_eq!(left(&limiter, &one_slot()).await, 0);
    sleep(HoldSettings::new().ttl()).await;
    assert_eq!(left(&limiter, &one_slot()).await, 1);
    assert_eq!(slot.release().await.unwrap(), SettleAnswer::Expired);
    assert_eq!(seen.too_long(), 1);
}

#[test]
fn a_longest_age_out_of_range_is_an_error_that_names_the_setting() {
    for longest in [Duration::ZERO, Policy::MAX_WINDOW + Duration::from_micros(1)] {
        let error = uploads().with_holds(HoldSettings::new().with_longest(longest)).validated().unwrap_err();
        assert!(error.to_string().contains("`with_longest`"), "{error}");
    }
}
