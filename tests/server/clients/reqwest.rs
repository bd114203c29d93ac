//! reqwest, which ignores Retry-After by itself. A minimal loop in the caller obeys the header.

use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode, retry};

use super::server::Server;

const WAIT: Duration = Duration::from_secs(1);

/// Repeats a request while it is rejected with Retry-After, and waits in between.
async fn get_with_retries(client: &Client, url: &str) -> Response {
    loop {
        let response = client.get(url).send().await.unwrap();
        let refused = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status());
        let retry_after = response.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse().ok());
        match retry_after {
            Some(seconds) if refused => tokio::time::sleep(Duration::from_secs(seconds)).await,
            _ => return response,
        }
    }
}

#[tokio::test]
async fn a_loop_around_reqwest_obeys_retry_after_of_a_429_and_passes() {
    let server = Server::spent(WAIT).await;
    assert_eq!(get_with_retries(&Client::new(), &server.url()).await.text().await.unwrap(), "passed");
    server.assert_waited_for_retry_after(429);
}

#[tokio::test]
async fn a_loop_around_reqwest_obeys_retry_after_of_a_503_and_passes() {
    let server = Server::down(WAIT).await;
    assert_eq!(get_with_retries(&Client::new(), &server.url()).await.text().await.unwrap(), "passed");
    server.assert_waited_for_retry_after(503);
}

/// reqwest's `retry` module repeats requests immediately, so it does not suit a 429.
#[tokio::test]
async fn the_retry_module_of_reqwest_does_not_wait() {
    let server = Server::spent(Duration::from_secs(60)).await;
    let policy =
        retry::for_host("127.0.0.1").max_retries_per_request(2).no_budget().classify_fn(|attempt| {
            match attempt.status() {
                Some(StatusCode::TOO_MANY_REQUESTS) => attempt.retryable(),
                _ => attempt.success(),
            }
        });
    let client = Client::builder().retry(policy).build().unwrap();
    let started = Instant::now();
    assert_eq!(client.get(server.url()).send().await.unwrap().status(), 429);
    assert_eq!(server.statuses(), [429, 429, 429]);
    assert!(started.elapsed() < Duration::from_secs(30), "the retries waited for Retry-After");
}
