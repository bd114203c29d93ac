//! grpc.json: refused calls as a gRPC client library reads them, and the detection of gRPC requests.

use std::convert::Infallible;

use axum::body::{Body, HttpBody};
use http::{Request, Response, Version, request::Parts};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tollgate::{
    Error, ErrorKind, GrpcStatus, Key, KeyExtractor, Limiter, Policy, ProblemJson, RateLimitLayer, http, key::KeyError,
};
use tonic::Status;
use tonic_types::{ErrorDetail, StatusExt};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::outcome::{Outcome, expect, id, unknown};
use crate::problem::Scripted;

pub(crate) async fn run(file: &Value) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["grpc"].as_array().unwrap() {
        results.push((id(case), run_case(case).await));
    }
    for case in file["detection"].as_array().unwrap() {
        let denied = json!({ "kind": "deny", "violated": ["burst"], "retry_after_ms": 1_000 });
        let response = call(&denied, case["content-type"].as_str(), true).await;
        let is_grpc = response.map(|response| response.headers().contains_key("grpc-status"));
        let outcome = is_grpc.map(|is_grpc| expect("is_grpc", &Some(is_grpc), &case["is_grpc"].as_bool()).into());
        results.push((format!("detects {:?}", case["content-type"]), outcome.unwrap_or_else(|skipped| skipped)));
    }
    results
}

async fn run_case(case: &Value) -> Outcome {
    let (decision, expected) = (&case["decision"], &case["expected"]);
    if let Some(skipped) = unknown(decision, &["kind", "violated", "retry_after_ms", "mode"]) {
        return skipped;
    }
    match call(decision, case["request"]["content-type"].as_str(), !expected["details"].is_null()).await {
        Ok(response) => compare(expected, response).await.into(),
        Err(skipped) => skipped,
    }
}

/// The response to a request, with a store that returns the decision of the case.
async fn call(decision: &Value, content_type: Option<&str>, details: bool) -> Result<Response<Body>, Outcome> {
    let down = || Scripted(Err(Error::new(ErrorKind::Unavailable, "secret")));
    let (store, key): (_, Box<dyn KeyExtractor>) = match decision["kind"].as_str().unwrap() {
        "deny" => (Scripted(Ok(decision["retry_after_ms"].as_f64().map(micros))), Box::new(one_key)),
        "store_error" => (down(), Box::new(one_key)),
        "key_error" => (down(), Box::new(|_: &Parts| Err::<Key, _>(KeyError::missing("secret")))),
        other => return Err(Outcome::Skipped(format!("decision `{other}` is not supported"))),
    };
    let violated = decision["violated"].as_array().into_iter().flatten();
    let mut policies: Vec<Policy> = violated.map(|name| policy(name.as_str().unwrap())).collect();
    if policies.is_empty() {
        policies.push(policy("default"));
    }
    let rejection = GrpcStatus::default().with_details(details).otherwise(ProblemJson::default());
    let layer = RateLimitLayer::new(Limiter::new(store), policies, key).with_rejection(rejection);
    let layer = if decision["mode"] == "fail_open" { layer.fail_open() } else { layer.fail_closed() };
    let handler = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let mut request = Request::post("/acme.v1.Greeter/Hello").version(Version::HTTP_2).header("te", "trailers");
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    let service = ServiceBuilder::new().layer(layer).service(handler);
    Ok(service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap())
}

fn one_key(_: &Parts) -> Key {
    Key::from("all")
}

/// The policies of the vectors, as headers.json defines them.
fn policy(name: &str) -> Policy {
    match name {
        "daily" => Policy::per_day(name, 1_000),
        name => Policy::per_minute(name, 100),
    }
    .unwrap()
}

fn micros(millis: f64) -> u64 {
    (millis * 1_000.0).round() as u64
}

async fn compare(expected: &Value, response: Response<Body>) -> Result<(), String> {
    expect("status", &Some(u64::from(response.status().as_u16())), &expected["http_status"].as_u64())?;
    if let Some(end_stream) = expected["end_stream_on_headers"].as_bool() {
        expect("ends with its headers", &response.body().is_end_stream(), &end_stream)?;
    }
    for (name, value) in expected["headers"].as_object().into_iter().flatten() {
        let lines: Vec<&str> = response.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
        expect(name, &lines, &value.as_str().into_iter().collect::<Vec<_>>())?;
    }
    if let Some(message) = expected["decoded_message"].as_str() {
        let status = Status::from_header_map(response.headers()).ok_or("no status")?;
        expect("message", &status.message(), &message)?;
        let details: Vec<Value> = status.get_error_details_vec().iter().map(as_json).collect();
        expect("details", &details, expected["details"].as_array().unwrap_or(&Vec::new()))?;
    }
    if expected["trailers_only"] == true {
        let body = response.into_body().collect().await.unwrap();
        expect("trailers", &body.trailers(), &None::<&http::HeaderMap>)?;
        expect("body", &body.to_bytes().len(), &0)?;
    }
    Ok(())
}

fn as_json(detail: &ErrorDetail) -> Value {
    match detail {
        ErrorDetail::RetryInfo(info) => {
            let delay = info.retry_delay.unwrap();
            let fraction = if delay.subsec_millis() > 0 { format!(".{:03}", delay.subsec_millis()) } else { "".into() };
            json!({ "@type": "google.rpc.RetryInfo", "retryDelay": format!("{}{fraction}s", delay.as_secs()) })
        }
        ErrorDetail::QuotaFailure(failure) => {
            let violations = failure.violations.iter().map(|violation| {
                json!({
                    "subject": violation.subject,
                    "description": violation.description,
                    "quota_id": violation.quota_id,
                    "quota_value": violation.quota_value,
                })
            });
            json!({ "@type": "google.rpc.QuotaFailure", "violations": violations.collect::<Vec<_>>() })
        }
        other => json!(format!("{other:?}")),
    }
}
