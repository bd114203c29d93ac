//! Wrong settings, and the types of a layer.

use std::error::Error;

use http::{HeaderMap, Response, StatusCode};
use tollgate::{
    ConfigError, Key, Limiter, MemoryStore, ThrottleLayer,
    throttle::{HttpHead, Throttle, Throttled},
};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::upstream::{Upstream, call, limiter};
use crate::support::{counting::EmptyRequest, per_minute, says};

fn layer() -> ThrottleLayer {
    ThrottleLayer::new(limiter(), per_minute("p", 10), "upstream")
}

#[tokio::test]
async fn a_fixed_cost_that_would_throttle_nothing_or_everything_is_an_error() {
    let zero = layer().with_cost(0).unwrap_err();
    says(&zero, r#"policy "p": a cost of 0 would throttle nothing; "#);
    says(&zero, "a closure that returns 0");
    let above = layer().with_cost(11_u32).unwrap_err();
    says(above, r#"a cost of 11 can never pass policy "p", which lets at most 10 through at once; "#);
    says(layer().with_cost(-1).unwrap_err(), "a cost of -1 would refund units; ");
    assert!(layer().with_cost(10).is_ok());
}

#[tokio::test]
async fn fail_local_needs_a_fallback() {
    says(layer().fail_local().unwrap_err(), "fail_local needs a limiter with a local fallback: ");
    let limiter = Limiter::new(MemoryStore::new()).with_local(MemoryStore::new(), 1).unwrap();
    assert!(ThrottleLayer::new(limiter, per_minute("p", 1), "k").fail_local().is_ok());
}

#[tokio::test]
async fn a_computed_cost_above_the_capacity_is_an_error_of_the_call() {
    let upstream = Upstream::default();
    let client = layer().with_cost(|_: &EmptyRequest| 11).unwrap().fail_open().layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!(throttled.retry_after(), None);
    assert!(throttled.decision().is_none() && throttled.error().is_none());
    assert!(throttled.to_string().contains("can never pass"), "{throttled}");
    says(throttled.source().unwrap().downcast_ref::<ConfigError>().unwrap(), "a cost of 11 can never pass ");
    assert!(upstream.calls().is_empty());
}

/// The types of a client that a struct can have as fields.
#[tokio::test]
async fn the_types_have_names_and_clones() {
    type KeyOf = fn(&EmptyRequest) -> Key;
    type CostOf = fn(&EmptyRequest) -> u32;
    struct Client {
        one: Throttle<Upstream>,
        by_host: Throttle<Upstream, KeyOf, CostOf, HttpHead>,
    }
    let client = Client {
        one: layer().layer(Upstream::default()),
        by_host: layer()
            .with_key((|_| Key::from("host")) as KeyOf)
            .with_cost((|_| 1) as CostOf)
            .unwrap()
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
    struct Question(u32);
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
