//! The Python SDKs of OpenAI and Anthropic, which wait for `retry-after-ms` before they look at Retry-After.

use std::time::{Duration, Instant};

use axum::{Json, Router, routing::post};
use serde_json::json;
use tollgate::{GlobalKey, HeaderStyle, MemoryStore, Policy, RateLimitLayer, headers::HeaderWriter};

use super::program::run;
use crate::support::http::serve;

/// Requests each 100 ms.
const WINDOW: Duration = Duration::from_millis(100);
/// More than the burst of one, and few enough for a test.
const CALLS: u32 = 20;

/// Both SDKs send POST, retry, and return JSON.
const SCRIPT: &str = "\
import importlib, sys
name, url, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
try:
    sdk = importlib.import_module(name)
except ImportError:
    print('missing')
    sys.exit()
client = {'openai': 'OpenAI', 'anthropic': 'Anthropic'}[name]
client = getattr(sdk, client)(base_url=url, api_key='key', max_retries=20)
for _ in range(calls):
    assert client.post('/v1/answer', body={}, cast_to=object) == {'answer': 42}
print('passed')
";

/// How long the calls of an SDK take, or `None` without the SDK, which `tests/run` does not install.
async fn time_of_calls(sdk: &str, writer: HeaderWriter) -> Option<Duration> {
    let policy = Policy::new("p", 1, WINDOW).unwrap();
    let limit = RateLimitLayer::new(MemoryStore::new(), policy, GlobalKey).with_headers(writer);
    let answer = || async { Json(json!({ "answer": 42 })) };
    let address = serve(Router::new().route("/v1/answer", post(answer)).layer(limit)).await;
    let started = Instant::now();
    let output = run("python3", &["-c", SCRIPT, sdk, &format!("http://{address}"), &CALLS.to_string()]).await?;
    if output.trim() == "missing" {
        eprintln!("skipped: python3 has no {sdk}");
        return None;
    }
    assert_eq!(output.trim(), "passed");
    Some(started.elapsed())
}

/// With whole seconds, twenty calls take 19 seconds at least. The time includes the start of the SDK.
async fn loses_no_second_with_each_call(sdk: &str) {
    for style in [HeaderStyle::OpenAi, HeaderStyle::Draft11] {
        let writer = HeaderWriter::new(style).with_retry_after_ms(true);
        let Some(time) = time_of_calls(sdk, writer).await else { return };
        assert!(time > WINDOW * (CALLS - 1), "{sdk} was early: {time:?}");
        assert!(time < Duration::from_secs(12), "{sdk} has waited for whole seconds: {time:?}");
    }
}

#[tokio::test]
async fn the_sdk_of_openai_waits_for_the_milliseconds() {
    loses_no_second_with_each_call("openai").await;
}

#[tokio::test]
async fn the_sdk_of_anthropic_waits_for_the_milliseconds() {
    loses_no_second_with_each_call("anthropic").await;
}
