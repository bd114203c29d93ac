//! A response as its client reads it.

use axum::body::Body;
use http::{HeaderMap, Response, header};
use tollgate::Decision;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) status: u16,
    /// The `RateLimit-Policy` field: names, and q and w.
    pub(crate) quotas: Vec<(String, u64, u64)>,
    /// The `RateLimit` field: names, and r and t.
    pub(crate) left: Vec<(String, u64, u64)>,
    /// The `Retry-After` field, in seconds.
    pub(crate) retry_after: Option<u64>,
    /// The exact wait, in milliseconds, that a middleware around the layer can read.
    pub(crate) exact_wait: Option<u64>,
    pub(crate) must_not_be_stored: bool,
}

impl Seen {
    pub(crate) fn read(at: u64, response: &Response<Body>) -> Self {
        let headers = response.headers();
        let wait = response.extensions().get::<Decision>().and_then(Decision::retry_after);
        Self {
            at,
            status: response.status().as_u16(),
            quotas: list(headers, "ratelimit-policy", "q", "w"),
            left: list(headers, "ratelimit", "r", "t"),
            retry_after: text(headers, header::RETRY_AFTER.as_str()).parse().ok(),
            exact_wait: wait.map(|wait| u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)),
            must_not_be_stored: text(headers, header::CACHE_CONTROL.as_str()) == "no-store",
        }
    }

    pub(crate) fn has_fields(&self) -> bool {
        !self.quotas.is_empty() || !self.left.is_empty()
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The members of a field such as `"one";q=20;w=1, "two";q=5;qu="x"`, with two of their parameters.
fn list(headers: &HeaderMap, name: &str, first: &str, second: &str) -> Vec<(String, u64, u64)> {
    let members = text(headers, name).split(',').filter(|member| !member.trim().is_empty());
    let number = |member: &str, name: &str| {
        let parameter = member.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        parameter.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let name = |member: &str| member.split(';').next().unwrap_or("").trim().trim_matches('"').to_owned();
    members.map(|member| (name(member), number(member, first), number(member, second))).collect()
}
