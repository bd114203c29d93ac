//! Requests that wait in front of a handler: two instances of a service share a limit over a way of 5 ms.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::{Router, body::Body, http::Request, routing::get};
use tokio::task::JoinSet;
use tollgate::{Algorithm, GlobalKey, Policy, RateLimitLayer, RedisStore};
use tower::ServiceExt;

use crate::support::{link::Link, redis_server::RedisServer};

/// Instants at which the handlers of all instances ran.
type Handled = Arc<Mutex<Vec<Instant>>>;

fn instance(url: &str, policy: &Policy, max_wait: Duration, handled: &Handled) -> Router {
    let store = RedisStore::builder().deadline(Duration::from_secs(1)).open(url).unwrap();
    let limit = RateLimitLayer::new(store, policy.clone(), GlobalKey).wait_up_to(max_wait).fail_closed();
    let handled = Arc::clone(handled);
    let handler = get(move || async move { handled.lock().unwrap().push(Instant::now()) });
    Router::new().route("/", handler).layer(limit.validated().unwrap())
}

/// Sends a number of requests at once to each instance. Returns how many had each status.
async fn burst(instances: &[Router], requests: usize) -> Vec<(u16, usize)> {
    let mut sent = JoinSet::new();
    for _ in 0..requests {
        for instance in instances {
            sent.spawn(instance.clone().oneshot(Request::new(Body::empty())));
        }
    }
    let statuses: Vec<u16> = sent.join_all().await.into_iter().map(|one| one.unwrap().status().as_u16()).collect();
    let count = |status: u16| (status, statuses.iter().filter(|one| **one == status).count());
    [200, 429, 503].map(count).to_vec()
}

#[tokio::test]
async fn law_1_a_burst_of_requests_to_two_instances_is_spaced_by_one_limit() {
    let server = RedisServer::start();
    let link = Link::to(server.port(), Duration::from_millis(5));
    // In any 100 ms, at most 5: a window whose end can be seen from the times of the handlers.
    let policy = Policy::new("p", 5, Duration::from_millis(100)).unwrap();
    let handled = Handled::default();
    let instances = [(); 2].map(|()| instance(&link.url(), &policy, Duration::from_secs(20), &handled));
    assert_eq!(burst(&instances, 20).await, [(200, 40), (429, 0), (503, 0)]);
    let mut handled = handled.lock().unwrap().clone();
    handled.sort();
    assert_eq!(handled.len(), 40);
    // Seven windows lie between the first and the last of forty. What is on its way may be late, so the whole is
    // judged.
    let took = handled[39] - handled[0];
    assert!(took >= Duration::from_millis(650), "{took:?}");
}

#[tokio::test]
async fn requests_whose_wait_is_certain_to_be_too_long_are_refused_and_the_others_pass() {
    let server = RedisServer::start();
    let link = Link::to(server.port(), Duration::from_millis(5));
    let policy = Policy::per_minute("p", 6).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(2);
    let handled = Handled::default();
    let instances = [instance(&link.url(), &policy, Duration::from_millis(500), &handled)];
    // Each further unit takes ten seconds.
    let started = Instant::now();
    assert_eq!(burst(&instances, 20).await, [(200, 2), (429, 18), (503, 0)]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(handled.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn law_8_requests_that_wait_are_left_to_the_failure_policy_when_redis_goes_away() {
    let server = RedisServer::start();
    let link = Link::to(server.port(), Duration::from_millis(5));
    let policy = Policy::per_second("p", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let handled = Handled::default();
    let instances = [instance(&link.url(), &policy, Duration::from_secs(60), &handled)];
    let waiting = burst(&instances, 100);
    let stopping = async {
        // Some have passed by then, and the others wait.
        while handled.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(server);
        Instant::now()
    };
    let (statuses, stopped) = tokio::join!(waiting, stopping);
    let took = stopped.elapsed();
    let [(200, passed), (429, 0), (503, refused)] = statuses[..] else { panic!("{statuses:?}") };
    assert_eq!(passed, handled.lock().unwrap().len());
    assert!(passed < 20 && refused > 80, "{statuses:?}");
    // Ten seconds of turns were left.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
