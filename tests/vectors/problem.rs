//! problem.json: rejections as a client sees them, through a real layer over a store with the verdict of the case.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, Error, ErrorKind, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, Policy, ProblemJson, RateLimitLayer,
    decision::Source, http,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::outcome::{Outcome, expect, id};

pub(crate) async fn run(file: &Value) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["problem"].as_array().unwrap() {
        results.push((id(case), run_case(case).await));
    }
    results
}

async fn run_case(case: &Value) -> Outcome {
    let decision = &case["decision"];
    let names: Vec<&str> = decision["violated"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Ok(mut policies) = names.iter().map(|name| Policy::per_minute(*name, 100)).collect::<Result<Vec<_>, _>>()
    else {
        // No policy accepts such a name, but a document may contain it.
        let document = ProblemJson::default().quota_document(names);
        return expect("body", &serde_json::from_slice::<Value>(&document).unwrap(), &case["expected"]["body"]).into();
    };
    if policies.is_empty() {
        policies.push(Policy::per_minute("default", 100).unwrap());
    }
    let retry_after_us = decision["retry_after_ms"].as_f64().map(|millis| (millis * 1e3).ceil() as u64);
    let mut method = Request::builder().method(case["request"]["method"].as_str().unwrap_or("GET"));
    // All texts of the decision: its kind and its details.
    let words: Vec<&str> = decision.as_object().unwrap().values().filter_map(Value::as_str).collect();
    let said = |word: &str| words.iter().any(|said| said.contains(word));
    let open = said("open");
    let (verdict, key): (_, Box<dyn KeyExtractor>) = match decision["kind"].as_str().unwrap() {
        "deny" => (Ok(retry_after_us), Box::new(GlobalKey)),
        _ if said("reduced") || said("abnormal") => (Ok(retry_after_us), Box::new(GlobalKey)),
        "key_error" => {
            // A repeated header is an unusable key.
            method = method.header("x-client", "secret-a").header("x-client", "secret-b");
            (Ok(None), Box::new(HeaderKey::new("x-client").unwrap()))
        }
        _ if open || said("closed") => (Err(Error::new(ErrorKind::Unavailable, "secret")), Box::new(GlobalKey)),
        other => return Outcome::Skipped(format!("decision `{other}` is not supported")),
    };
    let mut rejection = ProblemJson::default();
    if said("reduced") {
        rejection = ProblemJson::reduced_capacity();
    } else if said("abnormal") {
        rejection = ProblemJson::abnormal_usage();
    }
    if let Some(status) = decision["status_override"].as_u64() {
        let status = StatusCode::from_u16(u16::try_from(status).unwrap()).unwrap();
        rejection = rejection.with_quota_status(status);
    }
    let layer = RateLimitLayer::new(Limiter::new(Scripted(verdict)), policies, key).with_rejection(rejection);
    let layer = if open { layer.fail_open() } else { layer.fail_closed() };
    let handler = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let service = ServiceBuilder::new().layer(layer).service(handler);
    let response = service.oneshot(method.body(Body::empty()).unwrap()).await.unwrap();
    if names.is_empty() && response.headers().keys().any(|name| name.as_str().contains("ratelimit")) {
        return Outcome::Failed(format!("rate limit headers without a verdict: {:?}", response.headers()));
    }
    compare(&case["expected"], response).await.into()
}

async fn compare(expected: &Value, response: Response<Body>) -> Result<(), String> {
    expect("status", &u64::from(response.status().as_u16()), &expected["status"].as_u64().unwrap())?;
    let mut headers = expected["headers"].as_object().cloned().unwrap_or_default();
    headers.entry("retry-after").or_insert(Value::Null);
    for (name, value) in &headers {
        let actual = response.headers().get(name).map(|value| value.to_str().unwrap());
        expect(name, &actual, &value.as_str())?;
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    if expected.get("body").is_none_or(Value::is_null) {
        return expect("body", &body.len(), &0);
    }
    expect("body", &serde_json::from_slice::<Value>(&body).map_err(|error| error.to_string())?, &expected["body"])
}

/// A store that denies every charge with the same wait, or fails.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) Result<Option<u64>, Error>);

impl Store for Scripted {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        Answer::Ready(self.0.clone().map(|retry_after_us| {
            let next_us = retry_after_us.unwrap_or(0);
            let denied =
                tollgate::store::Outcome { fits: false, available: 0, retry_after_us, next_us, reset_us: 0, ban_us: 0 };
            let outcomes = check.charges().iter().map(|_| denied).collect();
            Verdict { allowed: false, source: Source::Store, time_us: 1_767_225_600_000_000, outcomes }
        }))
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}
