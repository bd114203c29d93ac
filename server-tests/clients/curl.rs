//! `curl --retry`. Left to itself it waits 1 second before its first retry, so that only 2 show obedience.

use std::time::Duration;

use super::{program::run, server::Server};

const WAIT: Duration = Duration::from_secs(2);

/// The body, after as many retries as needed.
async fn fetch(server: &Server) -> Option<String> {
    run("curl", &["--silent", "--show-error", "--fail", "--retry", "5", &server.url()]).await
}

#[tokio::test]
async fn curl_waits_as_a_429_says_and_passes() {
    let server = Server::spent(WAIT).await;
    let Some(body) = fetch(&server).await else { return };
    assert_eq!(body, "passed");
    server.assert_waited_as_told(429);
}

#[tokio::test]
async fn curl_waits_as_a_503_says_and_passes() {
    let server = Server::down(WAIT).await;
    let Some(body) = fetch(&server).await else { return };
    assert_eq!(body, "passed");
    server.assert_waited_as_told(503);
}
