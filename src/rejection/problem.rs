//! Problem documents, RFC 9457.

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};
use smallvec::SmallVec;

use super::{Denial, Reason, Rejection};

/// Answers refused requests with `application/problem+json` (RFC 9457): the default.
///
/// A spent quota has the type `quota-exceeded` of draft-ietf-httpapi-ratelimit-headers-11 with the names of the
/// violated policies; everything else is `about:blank`. Keys, addresses and store errors never appear. Works with any
/// body that can be made of [`Bytes`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson {
    quota_status: Option<StatusCode>,
}

impl ProblemJson {
    /// Answers a spent quota with `status`. Defaults to 429, as RFC 6585 says; GitHub's API uses 403.
    #[must_use]
    pub fn with_quota_status(self, status: StatusCode) -> Self {
        Self { quota_status: Some(status) }
    }
}

/// How the document of a spent quota begins.
const QUOTA_EXCEEDED: &[u8] = b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
    \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\"";

impl<B: From<Bytes>> Rejection<B> for ProblemJson {
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        let (mut status, mut violated) = (denial.status(), SmallVec::<[&str; 2]>::new());
        if let Reason::QuotaExceeded(decision) = denial.reason() {
            status = self.quota_status.unwrap_or(status);
            violated = decision.violated().map(|policy| policy.policy.name()).collect();
        }
        let mut document = Document::new();
        match denial.reason() {
            Reason::QuotaExceeded(_) => document.extend_from_slice(QUOTA_EXCEEDED),
            _ => {
                document.extend_from_slice(b"{\"type\":\"about:blank\",\"title\":");
                push_string(&mut document, status.canonical_reason().unwrap_or("Error"));
            }
        }
        finish(&mut document, status, denial.detail().as_deref(), &violated);
        // A response to HEAD has the same fields and no content. A server that counts would say a length of 0.
        let (body, length) = match parts.method {
            Method::HEAD => (Bytes::new(), Some(document.len())),
            _ => (Bytes::copy_from_slice(&document), None),
        };
        let mut response = Response::new(B::from(body));
        *response.status_mut() = status;
        if let Some(length) = length {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

/// Nearly all documents fit, and are then copied to a body of their size.
type Document = SmallVec<[u8; 320]>;

/// Writes what follows the title.
fn finish(json: &mut Document, status: StatusCode, detail: Option<&str>, violated: &[&str]) {
    json.extend_from_slice(b",\"status\":");
    json.extend_from_slice(status.as_str().as_bytes());
    if let Some(detail) = detail {
        json.extend_from_slice(b",\"detail\":");
        push_string(json, detail);
    }
    if !violated.is_empty() {
        json.extend_from_slice(b",\"violated-policies\":");
        for (index, policy) in violated.iter().enumerate() {
            json.push(if index == 0 { b'[' } else { b',' });
            push_string(json, policy);
        }
        json.push(b']');
    }
    json.push(b'}');
}

/// Our own texts and policy names: printable, so that two signs are to be escaped.
fn push_string(json: &mut Document, text: &str) {
    json.push(b'"');
    // Up to each sign that is to be escaped, and on from there.
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        json.extend_from_slice(&rest[..at]);
        json.extend_from_slice(&[b'\\', rest[at]]);
        rest = &rest[at + 1..];
    }
    json.extend_from_slice(rest);
    json.push(b'"');
}
