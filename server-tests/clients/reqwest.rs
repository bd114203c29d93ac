//! reqwest. It reads no Retry-After of its own, so a caller has to: here in a loop, as short as it can honestly be.

use std::time::{Duration, Instant};

use reqwest::{Client, Response, StatusCode, retry};

use super::server::Server;

const WAIT: Duration = Duration::from_secs(1);

async fn patient(client: &Client, url: &str) -> Response {
    loop {
        let response = client.get(url).send().await.unwrap();
        let refused = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status());
        let told = response.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse().ok());
        match told {
            Some(seconds) if refused => tokio::time::sleep(Duration::from_secs(seconds)).await,
            _ => return response,
        }
    }
}

#[tokio::test]
async fn a_loop_around_reqwest_waits_as_a_429_says_and_passes() {
    let server = Server::spent(WAIT).await;
    assert_eq!(patient(&Client::new(), &server.url()).await.text().await.unwrap(), "passed");
    server.assert_waited_as_told(429);
}

#[tokio::test]
async fn a_loop_around_reqwest_waits_as_a_503_says_and_passes() {
    let server = Server::down(WAIT).await;
    assert_eq!(patient(&Client::new(), &server.url()).await.text().await.unwrap(), "passed");
    server.assert_waited_as_told(503);
}

/// Its `retry` module is for requests that are safe to repeat at once; for a 429 it is the wrong one.
#[tokio::test]
async fn reqwest_s_own_retries_do_not_wait() {
    let server = Server::spent(Duration::from_secs(60)).await;
    let again =
        retry::for_host("127.0.0.1").max_retries_per_request(2).no_budget().classify_fn(|attempt| {
            match attempt.status() {
                Some(StatusCode::TOO_MANY_REQUESTS) => attempt.retryable(),
                _ => attempt.success(),
            }
        });
    let client = Client::builder().retry(again).build().unwrap();
    let started = Instant::now();
    assert_eq!(client.get(server.url()).send().await.unwrap().status(), 429);
    assert_eq!(server.statuses(), [429, 429, 429]);
    assert!(started.elapsed() < Duration::from_secs(30), "told to wait for 60 s");
}
