//! `curl --retry`. Its default pause before the first retry is 1 second, so only a wait of 2 seconds proves obedience.

use std::time::Duration;

use super::{program::run, server::Server};

const WAIT: Duration = Duration::from_secs(2);

/// The body after up to five retries, or `None` without curl.
async fn fetch(server: &Server) -> Option<String> {
    run("curl", &["--silent", "--show-error", "--fail", "--retry", "5", &server.url()]).await
}

#[tokio::test]
async fn curl_obeys_retry_after_of_a_429_and_passes() {
    let server = Server::spent(WAIT).await;
    let Some(body) = fetch(&server).await else { return };
    assert_eq!(body, "passed");
    server.assert_waited_for_retry_after(429);
}

#[tokio::test]
async fn curl_obeys_retry_after_of_a_503_and_passes() {
    let server = Server::down(WAIT).await;
    let Some(body) = fetch(&server).await else { return };
    assert_eq!(body, "passed");
    server.assert_waited_for_retry_after(503);
}
