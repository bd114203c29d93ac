//! Readiness: `poll_ready` reserves capacity in the inner service, and the instance that was polled is the one called.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::StatusCode;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Key, Limiter, Policy, RateLimitLayer};
use tower::{Service, ServiceBuilder, ServiceExt, load_shed::error::Overloaded, service_fn};
use tower_test::mock;

use crate::support::counting::{AnswerKind, BytesResponse, CountingService, EmptyRequest, layer, status};

#[tokio::test]
async fn poll_ready_is_forwarded_and_charges_nothing() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let (mut service, mut handle) =
            mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer(Limiter::new(store.clone()), 1));
        handle.allow(0);
        assert_pending!(service.poll_ready(), "{kind:?}");
        handle.allow(1);
        assert!(service.is_woken(), "{kind:?}: the caller is woken by the inner service");
        for _ in 0..100 {
            assert_ready_ok!(service.poll_ready(), "{kind:?}");
        }
        assert_eq!(store.sent(), 0, "{kind:?}");
    }
}

#[tokio::test]
async fn law_7_poll_ready_charges_nothing() {
    for kind in AnswerKind::BOTH {
        let mut service = ServiceBuilder::new().layer(kind.layer(1)).service(CountingService::default());
        for _ in 0..10 {
            service.clone().ready().await.unwrap();
            service.ready().await.unwrap();
        }
        assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}: nothing was charged");
        assert_eq!(status(&mut service).await, StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
    }
}

/// The mock panics if a clone is called that was not polled ready.
#[tokio::test]
async fn calls_the_instance_that_was_polled_ready() {
    for kind in AnswerKind::BOTH {
        let (mut service, mut handle) = mock::spawn_layer::<EmptyRequest, BytesResponse, _>(kind.layer(10));
        for _ in 0..3 {
            handle.allow(1);
            assert_ready_ok!(service.poll_ready(), "{kind:?}");
            let (response, ()) = tokio::join!(service.call(EmptyRequest::default()), async {
                let (_, respond) = handle.next_request().await.unwrap();
                respond.send_response(BytesResponse::default());
            });
            assert_eq!(response.unwrap().status(), StatusCode::OK, "{kind:?}");
            // The instance that remains has no reservation.
            assert_pending!(service.poll_ready(), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn law_7_only_the_instance_that_was_polled_ready_is_called() {
    for kind in AnswerKind::BOTH {
        let inner = ReservingService::default();
        let log = Arc::clone(&inner.log);
        let mut service = ServiceBuilder::new().layer(kind.layer(10)).service(inner);
        for _ in 0..3 {
            assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}");
            assert_eq!(status(&mut service.clone()).await, StatusCode::OK, "{kind:?}");
        }
        let log = log.lock().unwrap();
        assert_eq!(log.called.len(), 6, "{kind:?}");
        assert_eq!(log.polled, log.called, "{kind:?}: instances polled ready, and instances called");
    }
}

/// The closures of a service's own code may panic. Servers catch the panic of one request and go on.
#[tokio::test]
async fn a_panic_of_a_closure_gives_the_reservation_back() {
    fn panics<T>(_: &http::request::Parts) -> T {
        panic!("the closure of a test")
    }
    for kind in AnswerKind::BOTH {
        let reserved = Arc::new(tokio::sync::Semaphore::new(1));
        let inner = || {
            let limit = tower::limit::GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(&reserved));
            ServiceBuilder::new().layer(limit).service(CountingService::default())
        };
        let policy = Policy::per_minute("all", 10).unwrap();
        let key = RateLimitLayer::new(kind.limiter(), policy, |parts: &http::request::Parts| panics::<Key>(parts));
        let mut by_key = ServiceBuilder::new().layer(key).service(inner());
        let mut by_cost = ServiceBuilder::new().layer(kind.layer(10).with_cost_fn(panics::<u64>)).service(inner());

        by_key.ready().await.unwrap();
        assert_eq!(reserved.available_permits(), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| by_key.call(EmptyRequest::default()))).is_err());
        assert_eq!(reserved.available_permits(), 1, "{kind:?}: the key");

        by_cost.ready().await.unwrap();
        assert_eq!(reserved.available_permits(), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| by_cost.call(EmptyRequest::default()))).is_err());
        assert_eq!(reserved.available_permits(), 1, "{kind:?}: the cost");
    }
}

/// A service that may be called once after each readiness, on the instance that was polled.
#[derive(Debug, Default)]
struct ReservingService {
    id: usize,
    ready: bool,
    instances: Arc<AtomicUsize>,
    log: Arc<Mutex<CallLog>>,
}

/// The ids of the instances that were polled ready and called.
#[derive(Debug, Default)]
struct CallLog {
    polled: Vec<usize>,
    called: Vec<usize>,
}

impl Clone for ReservingService {
    fn clone(&self) -> Self {
        let id = self.instances.fetch_add(1, Ordering::SeqCst) + 1;
        Self { id, ready: false, instances: Arc::clone(&self.instances), log: Arc::clone(&self.log) }
    }
}

impl Service<EmptyRequest> for ReservingService {
    type Response = BytesResponse;
    type Error = Infallible;
    type Future = Ready<Result<BytesResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.ready {
            self.ready = true;
            self.log.lock().unwrap().polled.push(self.id);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: EmptyRequest) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "instance {} was called without having been polled ready", self.id);
        self.log.lock().unwrap().called.push(self.id);
        ready(Ok(BytesResponse::default()))
    }
}

#[tokio::test]
async fn concurrency_limit_inside_is_called_with_its_permit() {
    for kind in AnswerKind::BOTH {
        let running = Arc::new(AtomicUsize::new(0));
        let inner = service_fn(move |_: EmptyRequest| {
            let running = Arc::clone(&running);
            async move {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "the concurrency limit is one");
                tokio::task::yield_now().await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Infallible>(BytesResponse::default())
            }
        });
        let service = ServiceBuilder::new().layer(kind.layer(4)).concurrency_limit(1).service(inner);
        let (mut a, mut b) = (service.clone(), service.clone());
        for _ in 0..2 {
            let (a, b) = tokio::join!(status(&mut a), status(&mut b));
            assert_eq!((a, b), (StatusCode::OK, StatusCode::OK), "{kind:?}");
        }
        assert_eq!(status(&mut a).await, StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
    }
}

#[tokio::test]
async fn buffer_inside_is_called_with_its_slot() {
    for kind in AnswerKind::BOTH {
        let mut service = ServiceBuilder::new().layer(kind.layer(3)).buffer(1).service(CountingService::default());
        for _ in 0..3 {
            assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}");
        }
        assert_eq!(status(&mut service).await, StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
    }
}

#[tokio::test]
async fn load_shed_outside_sheds_before_anything_is_charged() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let (inner, mut handle) = mock::pair::<EmptyRequest, BytesResponse>();
        let service = ServiceBuilder::new()
            .load_shed()
            .layer(layer(Limiter::new(store.clone()), 2))
            .concurrency_limit(1)
            .service(inner);
        let mut first = tokio_test::task::spawn(service.clone().oneshot(EmptyRequest::default()));
        while handle.poll_request().is_pending() {
            assert_pending!(first.poll());
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            let error = service.clone().oneshot(EmptyRequest::default()).await.unwrap_err();
            assert!(error.is::<Overloaded>(), "{kind:?}: {error}");
        }
        assert_eq!(store.sent(), 1, "{kind:?}: only the request that was not shed is charged");
    }
}
