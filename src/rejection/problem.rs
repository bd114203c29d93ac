//! Rejections with problem documents (RFC 9457).

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, request::Parts};
use smallvec::SmallVec;

use super::{Rejection, denial::Denial, respond};

/// Responds to refused requests with `application/problem+json` (RFC 9457): the default.
///
/// The document for a spent quota has a problem type of draft-ietf-httpapi-ratelimit-headers-11 and the names of the
/// violated policies, in the order of the configuration. The type is `quota-exceeded`, unless
/// [`abnormal_usage`](Self::abnormal_usage) or [`reduced_capacity`](Self::reduced_capacity) has made the rejection.
/// All other documents have the type `about:blank`. Keys, addresses and store errors never appear. Works with any body
/// type that implements `From<Bytes>`; a function converts the body into another type.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // Only a client that tries many passwords reaches this limit.
/// let guesses = Policy::per_hour("guesses", 20)?;
/// let layer =
///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), guesses, GlobalKey)
///         .with_rejection(ProblemJson::abnormal_usage());
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(|| async {})).layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// With a body that is not `From<Bytes>`, such as a `BoxBody` of hyper:
///
/// ```
/// use std::convert::Infallible;
///
/// use bytes::Bytes;
/// use http::{Request, Response, request::Parts};
/// use http_body_util::{BodyExt, Full, combinators::BoxBody};
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer,
///     rejection::{Denial, Rejection},
/// };
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// type Body = BoxBody<Bytes, Infallible>;
///
/// fn problem(parts: &Parts, denial: &Denial) -> Response<Body> {
///     ProblemJson::default()
///         .reject(parts, denial)
///         .map(|bytes: Bytes| Full::new(bytes).boxed())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::ConfigError> {
/// async fn hello(_: Request<Body>) -> Result<Response<Body>, Infallible> {
///     Ok(Response::new(Full::from("hello").boxed()))
/// }
///
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     Policy::per_second("all", 1)?,
///     GlobalKey,
/// )
/// .with_rejection(problem);
/// let service = ServiceBuilder::new().layer(limit).service(service_fn(hello));
///
/// for status in [200, 429] {
///     let Ok(response) =
///         service.clone().oneshot(Request::new(Body::default())).await;
///     assert_eq!(response.status(), status);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson {
    quota_type: QuotaType,
    quota_status: Option<StatusCode>,
}

/// The problem type of a spent quota.
#[derive(Clone, Copy, Debug, Default)]
enum QuotaType {
    AbnormalUsageDetected,
    #[default]
    QuotaExceeded,
    TemporaryReducedCapacity,
}

impl ProblemJson {
    /// For policies that detect abuse: the document of a spent quota has the type `abnormal-usage-detected`, and the
    /// status is 429.
    #[must_use]
    pub fn abnormal_usage() -> Self {
        Self { quota_type: QuotaType::AbnormalUsageDetected, quota_status: None }
    }

    /// For limits that the server has lowered for a while, for example by a
    /// [`PolicySource`](crate::policy::PolicySource) that depends on load. The client is within its usual quota: the
    /// document has the type `temporary-reduced-capacity`, and the status is 503.
    #[must_use]
    pub fn reduced_capacity() -> Self {
        Self { quota_type: QuotaType::TemporaryReducedCapacity, quota_status: None }
    }

    /// Sets the status for a spent quota. Defaults to the status of the problem type: 429 (RFC 6585) or 503. GitHub's
    /// API uses 403.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::ProblemJson;
    ///
    /// let rejection = ProblemJson::default().with_quota_status(StatusCode::FORBIDDEN);
    /// # let _ = rejection;
    /// ```
    #[must_use]
    pub fn with_quota_status(self, status: StatusCode) -> Self {
        Self { quota_status: Some(status), ..self }
    }

    /// The document for spent quotas with the names `violated`. Public for tests.
    #[doc(hidden)]
    pub fn quota_document<'a>(&self, violated: impl IntoIterator<Item = &'a str>) -> Bytes {
        Bytes::copy_from_slice(&self.spent(violated))
    }

    fn quota_status(&self) -> StatusCode {
        self.quota_status.unwrap_or(match self.quota_type {
            QuotaType::AbnormalUsageDetected | QuotaType::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            QuotaType::TemporaryReducedCapacity => StatusCode::SERVICE_UNAVAILABLE,
        })
    }

    /// Writes the document for a spent quota.
    fn spent<'a>(&self, violated: impl IntoIterator<Item = &'a str>) -> Document {
        let mut document = Document::from_slice(self.quota_type.beginning());
        push_status(&mut document, self.quota_status());
        document.extend_from_slice(b",\"violated-policies\":[");
        for (index, policy) in violated.into_iter().enumerate() {
            if index > 0 {
                document.push(b',');
            }
            push_string(&mut document, policy);
        }
        document.extend_from_slice(b"]}");
        document
    }
}

#[diagnostic::do_not_recommend]
impl<B: From<Bytes>> Rejection<B> for ProblemJson {
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        let (status, document) = match denial.decision() {
            Some(decision) => (self.quota_status(), self.spent(decision.violated().map(|policy| policy.policy.name()))),
            None => (denial.status(), blank(denial.status(), denial.detail().as_deref())),
        };
        respond(parts, status, HeaderValue::from_static("application/problem+json"), &document)
    }
}

impl QuotaType {
    /// The document up to its title.
    fn beginning(self) -> &'static [u8] {
        match self {
            Self::AbnormalUsageDetected => {
                b"{\"type\":\"https://iana.org/assignments/http-problem-types#abnormal-usage-detected\",\
                  \"title\":\"Request not satisfied due to detection of abnormal request pattern\""
            }
            Self::QuotaExceeded => {
                b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
                  \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\""
            }
            Self::TemporaryReducedCapacity => {
                b"{\"type\":\"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity\",\
                  \"title\":\"Request cannot be satisfied due to temporary server capacity constraints\""
            }
        }
    }
}

/// A document under construction. Nearly all documents fit in place, so the body is their only allocation.
type Document = SmallVec<[u8; 320]>;

/// A document of type `about:blank`: the status, and a detail if there is one.
fn blank(status: StatusCode, detail: Option<&str>) -> Document {
    let mut document = Document::from_slice(b"{\"type\":\"about:blank\",\"title\":");
    push_string(&mut document, status.canonical_reason().unwrap_or("Error"));
    push_status(&mut document, status);
    if let Some(detail) = detail {
        document.extend_from_slice(b",\"detail\":");
        push_string(&mut document, detail);
    }
    document.push(b'}');
    document
}

/// Writes the status, which must equal the status of the response.
fn push_status(document: &mut Document, status: StatusCode) {
    document.extend_from_slice(b",\"status\":");
    document.extend_from_slice(status.as_str().as_bytes());
}

/// Writes a JSON string.
fn push_string(document: &mut Document, text: &str) {
    document.push(b'"');
    // The text between two characters that need an escape is copied as a whole.
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F)) {
        document.extend_from_slice(&rest[..at]);
        match rest[at] {
            escaped @ (b'"' | b'\\') => document.extend_from_slice(&[b'\\', escaped]),
            control => document.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    document.extend_from_slice(rest);
    document.push(b'"');
}
