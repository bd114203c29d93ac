//! An upstream that asks two processes to wait, which share a Redis.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::task::JoinSet;
use tollgate::{Policy, ThrottleLayer};
use tower::{Layer, Service, ServiceExt};

use crate::support::{link::Link, measured, redis_server::RedisServer};
use crate::{load::limiter, print_line, undisturbed};

/// Refuses the first call with 429 and Retry-After: 2, and records the times of all calls.
#[derive(Clone, Default)]
struct Upstream(Arc<Mutex<Vec<Instant>>>);

impl Service<Request<()>> for Upstream {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut calls = self.0.lock().unwrap();
        calls.push(Instant::now());
        let mut response = Response::new(());
        if calls.len() == 1 {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(RETRY_AFTER, 2.into());
        }
        ready(Ok(response))
    }
}

#[test]
fn a_pause_that_one_process_is_asked_for_holds_in_all_and_ends_without_a_herd() {
    measured(|| undisturbed(pause_two));
}

/// Returns the times of the calls after the pause, if they are late or a herd.
fn pause_two() -> Option<String> {
    let server = RedisServer::start();
    let url = Link::to(server.port(), Duration::from_millis(1)).url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let upstream = Upstream::default();
    runtime.block_on(async {
        let policy = Policy::per_second("upstream", 100).unwrap();
        // Two limiters know of each other through Redis alone, as two processes do.
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (limiter, _) = limiter(&url).await;
            clients.push(
                ThrottleLayer::new(limiter, policy.clone(), "account").with_shared_pauses().layer(upstream.clone()),
            );
        }
        let call = |client: usize| clients[client].clone().oneshot(Request::new(()));
        assert_eq!(call(0).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
        // The pause reaches Redis in a task of its own.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut calls = JoinSet::new();
        for client in [0, 1].repeat(20) {
            calls.spawn(call(client));
        }
        assert!(calls.join_all().await.into_iter().all(|response| response.unwrap().status() == 200));
    });
    let calls = upstream.0.lock().unwrap();
    let after: Vec<Duration> = calls[1..].iter().map(|call| call.duration_since(calls[0])).collect();
    let most_at_once = after
        .iter()
        .map(|from| after.iter().filter(|call| (*from..*from + Duration::from_millis(50)).contains(*call)).count());
    let most_at_once = most_at_once.max().unwrap();
    print_line(&format!(
        "waiting pause first={:?} last={:?} most_in_50_ms={most_at_once}",
        after[0],
        after.last().unwrap()
    ));
    assert!(after[0] >= Duration::from_secs(2), "{:?}", after[0]);
    // Five units come back in 50 ms, to each of the two.
    let is_well = *after.last().unwrap() < Duration::from_secs(3) && most_at_once <= 12;
    (!is_well).then(|| format!("late, or a herd: {after:?}"))
}
