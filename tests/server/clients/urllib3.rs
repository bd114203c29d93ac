//! Python's urllib3, the base of requests and of most SDKs. By default its `Retry` waits only for Retry-After.

use std::time::Duration;

use super::program::{required, run};
use super::server::Server;

const WAIT: Duration = Duration::from_secs(1);

const SCRIPT: &str = "\
import sys
try:
    import urllib3
except ImportError:
    print('missing')
    sys.exit()
pool = urllib3.PoolManager(retries=urllib3.Retry(5, raise_on_status=False))
response = pool.request(sys.argv[1], sys.argv[2])
print(response.status, response.data.decode())
";

/// The status and the body after up to five retries, or `None` without urllib3.
async fn fetch(server: &Server, method: &str) -> Option<String> {
    let answer = run("python3", &["-c", SCRIPT, method, &server.url()]).await?;
    if answer.trim() == "missing" {
        assert!(!required(), "python3 has no urllib3");
        eprintln!("skipped: python3 has no urllib3");
        return None;
    }
    Some(answer)
}

#[tokio::test]
async fn urllib3_obeys_retry_after_of_a_429_and_passes() {
    let server = Server::spent(WAIT).await;
    let Some(answer) = fetch(&server, "GET").await else { return };
    assert_eq!(answer.trim(), "200 passed");
    server.assert_waited_for_retry_after(429);
}

#[tokio::test]
async fn urllib3_obeys_retry_after_of_a_503_and_passes() {
    let server = Server::down(WAIT).await;
    let Some(answer) = fetch(&server, "GET").await else { return };
    assert_eq!(answer.trim(), "200 passed");
    server.assert_waited_for_retry_after(503);
}

/// urllib3 retries only idempotent methods.
#[tokio::test]
async fn urllib3_does_not_repeat_a_post() {
    let server = Server::spent(WAIT).await;
    let Some(answer) = fetch(&server, "POST").await else { return };
    assert!(answer.starts_with("429 "), "{answer}");
    assert!(answer.contains("quota-exceeded"), "the reason is in the body: {answer}");
    assert_eq!(server.statuses(), [429]);
}
