//! Wrong settings, and the types of a layer.

use std::error::Error;

use http::{HeaderMap, Response, StatusCode};
use tollgate::throttle::{Throttle, Throttled};
use tollgate::{ConfigError, Key, Limiter, MemoryStore, ThrottleLayer};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

use super::upstream::{Upstream, call, limiter};
use crate::support::{counting::EmptyRequest, per_minute, says};

fn layer() -> ThrottleLayer {
    ThrottleLayer::new(limiter(), per_minute("p", 10), "upstream")
}

#[tokio::test]
async fn a_fixed_cost_that_would_throttle_nothing_or_everything_is_an_error() {
    let zero = layer().with_cost(0).validated().unwrap_err();
    says(&zero, r#"policy "p": a cost of 0 would throttle nothing; "#);
    says(&zero, "a closure that returns 0");
    let above = layer().with_cost(11).validated().unwrap_err();
    says(above, r#"a cost of 11 can never pass policy "p", which lets at most 10 through at once; "#);
    assert!(layer().with_cost(10).validated().is_ok());
}

#[tokio::test]
async fn fail_local_needs_a_fallback() {
    says(layer().fail_local().validated().unwrap_err(), "fail_local needs a limiter with a local fallback: ");
    let limiter = Limiter::new(MemoryStore::new()).with_local_fallback(MemoryStore::new(), 1);
    assert!(ThrottleLayer::new(limiter, per_minute("p", 1), "k").fail_local().validated().is_ok());
}

#[tokio::test]
async fn a_throttle_with_a_mistake_that_is_not_validated_makes_no_call() {
    type Setter = fn(ThrottleLayer) -> ThrottleLayer;
    let mistakes: [(Setter, &str); 3] = [
        (|layer| layer.with_cost(0), "a cost of 0 would throttle nothing; "),
        (|layer| layer.with_cost(11), "a cost of 11 can never pass "),
        // The first of two mistakes.
        (|layer| layer.with_cost(12).with_cost(0).fail_local(), "a cost of 12 can never pass "),
    ];
    let failure_policies: [Setter; 3] =
        [|layer| layer.fail_open(), |layer| layer.fail_closed(), |layer| layer.fail_local()];
    for (mistake, message) in mistakes {
        for fail in failure_policies {
            let layer = fail(mistake(layer()));
            says(layer.clone().validated().unwrap_err(), message);
            makes_no_call(layer, message).await;
        }
    }
    makes_no_call(layer().fail_local(), "fail_local needs a limiter with a local fallback: ").await;
    // Calls that cost nothing are not made either.
    let (free, second) = (|_: &EmptyRequest| 0, per_minute("second", 5));
    makes_no_call(layer().with_cost_fn(free).and_limit(second, 6), "a cost of 6 can never pass ").await;
    let concurrent = tollgate::Policy::concurrent("calls", 2).unwrap();
    makes_no_call(layer().and_limit(concurrent, 1), r#"policy "calls" limits how much runs at once"#).await;
    let wrong = ThrottleLayer::new(limiter(), per_minute("p", 10).with_burst(5), "upstream").fail_open();
    makes_no_call(wrong, "only a token bucket has a burst; ").await;
    let wrong = layer().fail_open().and_limit(per_minute("second", 5).with_shards(6), 1);
    makes_no_call(wrong, "6 shards are out of range; ").await;
    let after = layer().and_limit(per_minute("second", 5), 1).with_cost(2);
    makes_no_call(after, "call `with_cost` before `and_limit`").await;
}

async fn makes_no_call<C>(layer: ThrottleLayer<Key, C>, message: &str)
where
    Throttle<Upstream, Key, C>: Service<EmptyRequest, Response = Response<()>, Error = BoxError>,
{
    let upstream = Upstream::default();
    let error = call(&layer.layer(upstream.clone())).await.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    says(throttled, "the throttle is misconfigured, so no call is made; ");
    says(throttled.source().unwrap(), message);
    assert!(upstream.calls().is_empty(), "{message}");
}

#[tokio::test]
async fn a_computed_cost_above_the_capacity_is_an_error_of_the_call() {
    let upstream = Upstream::default();
    let client = layer().with_cost_fn(|_: &EmptyRequest| 11).fail_open().layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!(throttled.retry_after(), None);
    assert!(throttled.decision().is_none());
    assert!(throttled.to_string().contains("can never pass"), "{throttled}");
    says(throttled.source().unwrap().downcast_ref::<ConfigError>().unwrap(), "a cost of 11 can never pass ");
    assert!(upstream.calls().is_empty());
}

/// The types of a client that a struct can have as fields.
#[tokio::test]
async fn the_types_have_names_and_clones() {
    type KeyOf = fn(&EmptyRequest) -> Key;
    type CostOf = fn(&EmptyRequest) -> u64;
    struct Client {
        one: Throttle<Upstream>,
        by_host: Throttle<Upstream, KeyOf, CostOf, ()>,
    }
    let client = Client {
        one: layer().layer(Upstream::default()),
        by_host: layer()
            .with_key((|_| Key::from("host")) as KeyOf)
            .with_cost_fn((|_| 1) as CostOf)
            .layer(Upstream::default()),
    };
    call(&client.one).await.unwrap();
    call(&client.by_host).await.unwrap();
    assert_eq!(client.one.get_ref().calls().len(), 1);
    assert!(!format!("{:?}", client.one).contains("upstream\""), "the key is private: {:?}", client.one);
}

/// Requests and responses that are not those of the `http` crate, as reqwest's are.
#[tokio::test(start_paused = true)]
async fn any_request_and_response_can_be_throttled() {
    struct Question(u64);
    struct Reply(StatusCode, HeaderMap);
    let service = service_fn(|question: Question| async move {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", question.0.into());
        Ok::<_, std::io::Error>(Reply(StatusCode::TOO_MANY_REQUESTS, headers))
    });
    let mut client = layer()
        .with_key(|question: &Question| Key::from(question.0))
        .with_response_head(|reply: &Reply| (reply.0, &reply.1))
        .layer(service);
    let started = tokio::time::Instant::now();
    for _ in 0..2 {
        let reply = client.ready().await.unwrap().call(Question(3)).await.unwrap();
        assert_eq!((reply.0.as_u16(), reply.1["retry-after"].as_bytes()), (429, &b"3"[..]), "unchanged");
    }
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[test]
fn a_client_of_send_services_is_send() {
    fn assert_send<T: Send>(_: &T) {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let service = service_fn(|_: EmptyRequest| async { Ok::<_, std::io::Error>(Response::new(())) });
    let mut client = layer().layer(service);
    assert_send(&client);
    assert_send(&client.call(EmptyRequest::default()));
}
