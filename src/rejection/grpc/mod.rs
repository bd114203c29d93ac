//! gRPC: the status of a refused call.

mod details;

use std::{borrow::Cow, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderName, HeaderValue, Method, Response, Version, request::Parts};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use self::details::{details, whole_millis};
use crate::headers::whole_seconds;
use crate::key::{KeyError, KeyFault};
use crate::rejection::denial::{Cause, Denial};
use crate::rejection::{EmptyBody, Rejection};

/// Responds to refused gRPC calls with a gRPC status, and to all other requests with `R`.
///
/// A gRPC client reads a plain 429 as `UNAVAILABLE`, and default retry policies then repeat the call. Therefore the
/// response is HTTP 200 with a gRPC status and no content ("trailers-only"):
///
/// | refused because | `grpc-status` | `grpc-message` |
/// | --- | --- | --- |
/// | the quota is spent | 8 `RESOURCE_EXHAUSTED` | rate limit exceeded; retry after 3s |
/// | the cost can never pass | 8 `RESOURCE_EXHAUSTED` | rate limit exceeded |
/// | the store is down, fail-closed | 14 `UNAVAILABLE` | rate limiter unavailable |
/// | the call lacks its credential | 16 `UNAUTHENTICATED` | The request has no credential in the header x-api-key. |
/// | the call has no usable key | 3 `INVALID_ARGUMENT` | rate limit key is missing or unusable, or the missing header |
/// | the layer is outside the one that inserts its key | 13 `INTERNAL` | that the service's log has the cause |
/// | it took longer than a hold may last | 4 `DEADLINE_EXCEEDED` | that the call took too long |
/// | the address is denied | 7 `PERMISSION_DENIED` | requests from this address are refused |
/// | the layer is misconfigured | 13 `INTERNAL` | the error |
///
/// `grpc-retry-pushback-ms` is the wait for clients that retry ([gRFC A6]), in milliseconds, rounded up. The largest
/// value is `i32::MAX` (24.8 days), the largest number that clients read, and -1 means that no wait helps.
/// `retry-after`, the RateLimit fields and the [details](Self::with_details) are sent as metadata. Calls that pass have
/// the RateLimit fields in their initial metadata, never in their trailers.
///
/// A request is a gRPC call if it is a POST over HTTP/2 or newer with the content type `application/grpc`, with or
/// without a suffix such as `+proto`. A GET, or a request over HTTP/1.1 without `te: trailers`, is not a gRPC call
/// whatever its content type, because its client reads HTTP statuses; `R` builds the response. gRPC-Web is not a gRPC
/// call either: put the layer inside the layer that translates gRPC-Web, or gRPC-Web clients get the response of `R`.
/// The translation adds `te: trailers`, also to calls over HTTP/1.1. One layer, with one budget, serves gRPC calls and
/// other requests on one port.
///
/// In a test without a connection, such as `oneshot`, `Request::post(path)` is over HTTP/1.1 and has no content type.
/// Its response is that of `R`. Add `.version(Version::HTTP_2).header("content-type", "application/grpc")`.
///
/// Works with any body type whose default is empty, such as those of tonic, axum and `http-body-util`.
///
/// # Examples
///
/// In front of a tonic server:
///
/// ```
/// use tollgate::{
///     ApiKey, GrpcStatus, Limiter, MemoryStore, Policy, RateLimitLayer, Route,
/// };
/// use tonic::transport::Server;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// # let (_, health) = tonic_health::server::health_reporter();
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit = RateLimitLayer::new(
///     limiter,
///     Policy::per_minute("per-client", 60)?,
///     ApiKey::header("x-api-key")?,
/// )
/// .route("/grpc.health.v1.Health/Check", Route::exempt())
/// .with_rejection(GrpcStatus::default())
/// .validated()?;
/// let server = Server::builder().layer(limit).add_service(health);
/// # drop(server);
/// # Ok(())
/// # }
/// ```
///
/// HTTP and gRPC in one axum `Router`, with problem documents for HTTP requests:
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{
///     GrpcStatus, Limiter, MemoryStore, PeerIp, Policy, ProblemJson,
///     RateLimitLayer,
/// };
/// use tonic::service::Routes;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// # let (_, health) = tonic_health::server::health_reporter();
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit: RateLimitLayer<PeerIp, GrpcStatus<ProblemJson>> =
///     RateLimitLayer::new(
///         limiter,
///         Policy::per_minute("per-client", 60)?,
///         PeerIp::new(),
///     )
///     .with_rejection(GrpcStatus::default().otherwise(ProblemJson::default()));
/// let app: Router = Routes::new(health)
///     .into_axum_router()
///     .route("/watch", get(|| async { "watching" }))
///     .layer(limit);
/// # Ok(())
/// # }
/// ```
///
/// # With tonic
///
/// * Routes: in front of a `Server` the path of a method is `/package.Service/Method`. On tonic's `Routes` as an axum
///   `Router`, the matched path is `/package.Service/{*rest}` for all methods of the service; set the layer's
///   [cost](crate::RateLimitLayer::with_cost) with a closure over the path to distinguish methods there.
/// * To limit one service alone, use `tonic::service::LayerExt::named_layer`.
/// * Addresses: tonic's server provides the peer address in an extension of type `TcpConnectInfo`. For
///   [`PeerIp`](crate::PeerIp), copy the address in a layer outside the limit, as below. `axum::serve` provides the
///   address as usual.
///
/// ```
/// use http::Request;
/// use tonic::{body::Body, transport::{Server, server::TcpConnectInfo}};
/// use tower::util::MapRequestLayer;
///
/// let with_address = MapRequestLayer::new(|mut request: Request<Body>| {
///     let info = request.extensions().get::<TcpConnectInfo>();
///     if let Some(address) = info.and_then(|info| info.remote_addr()) {
///         request.extensions_mut().insert(address);
///     }
///     request
/// });
/// let server = Server::builder().layer(with_address); // followed by .layer(limit)
/// ```
///
/// [gRFC A6]: https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback
#[derive(Clone, Copy, Debug)]
pub struct GrpcStatus<R = EmptyBody> {
    otherwise: R,
    details: bool,
}

impl<R> GrpcStatus<R> {
    /// Sets the rejection of requests that are not gRPC calls. Defaults to [`EmptyBody`], which works with tonic's
    /// bodies.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GrpcStatus, ProblemJson};
    ///
    /// let rejection = GrpcStatus::default().otherwise(ProblemJson::default());
    /// # let _ = rejection;
    /// ```
    #[must_use]
    pub fn otherwise<T>(self, rejection: T) -> GrpcStatus<T> {
        GrpcStatus { otherwise: rejection, details: self.details }
    }

    /// Sets whether `grpc-status-details-bin` is sent: a `google.rpc.Status` with `RetryInfo` if a wait helps, and a
    /// `QuotaFailure` with the names of the violated policies, at most 16. Keys never appear.
    ///
    /// Defaults to `true`, because some client libraries read the wait only from these details. The details of one
    /// policy take about 250 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::GrpcStatus;
    ///
    /// let rejection = GrpcStatus::default().with_details(false);
    /// # let _ = rejection;
    /// ```
    #[must_use]
    pub fn with_details(self, details: bool) -> Self {
        Self { details, ..self }
    }
}

impl Default for GrpcStatus {
    fn default() -> Self {
        Self { otherwise: EmptyBody, details: true }
    }
}

impl<B: Default, R: Rejection<B>> Rejection<B> for GrpcStatus<R> {
    fn reject(&self, parts: &Parts, denial: &Denial) -> Response<B> {
        if !is_call(parts) {
            return self.otherwise.reject(parts, denial);
        }
        let (code, message) = (code(denial), message(denial));
        let mut response = Response::new(B::default());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(code));
        headers.insert(GRPC_MESSAGE, ascii(utf8_percent_encode(&message, ESCAPED).to_string()));
        if denial.is_hidden {
            // Without a pushback, a client takes its own: a call without a wait would never be tried again.
            return response;
        }
        headers.insert(GRPC_RETRY_PUSHBACK_MS, denial.retry_after().map_or(NO_RETRY, pushback));
        let details = self.details.then(|| details(code, &message, denial)).flatten();
        if let Some(details) = details {
            headers.insert(GRPC_STATUS_DETAILS_BIN, ascii(STANDARD_NO_PAD.encode(details)));
        }
        response
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const GRPC_STATUS_DETAILS_BIN: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The pushback of a call that no wait helps. Clients do not retry after a negative number.
const NO_RETRY: HeaderValue = HeaderValue::from_static("-1");

/// The escaped characters of `grpc-message`. `%` and unprintable characters must be escaped; the others are escaped
/// because tonic escapes them.
const ESCAPED: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`').add(b'{').add(b'}');

/// Whether a request is a gRPC call: a POST over HTTP/2 or newer (gRPC over HTTP2, "Requests"), or a translated one,
/// with the content type `application/grpc`, ignoring case, alone or with a format (`+`) or a parameter (`;`). The
/// content type of gRPC-Web continues with `-`.
fn is_call(parts: &Parts) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    // A browser without TLS speaks HTTP/1.1. What translates its gRPC-Web leaves the version, and adds the field.
    let is_translated = || parts.headers.get(TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    if parts.method != Method::POST || parts.version < Version::HTTP_2 && !is_translated() {
        return false;
    }
    let Some((start, rest)) =
        parts.headers.get(CONTENT_TYPE).and_then(|value| value.as_bytes().split_at_checked(GRPC.len()))
    else {
        return false;
    };
    start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';'))
}

fn code(denial: &Denial) -> u16 {
    match denial.cause() {
        Cause::CostAboveLimit { .. } | Cause::QuotaExceeded(_) => 8,
        Cause::HeldTooLong { .. } => 4,
        Cause::Blocked { .. } | Cause::Key(KeyError(KeyFault::AddressDenied | KeyFault::Denied)) => 7,
        Cause::Key(KeyError(KeyFault::MissingCredential { .. })) => 16,
        Cause::Key(KeyError(KeyFault::MissingExtension(_))) | Cause::Misconfigured(_) => 13,
        Cause::Key(_) => 3,
        Cause::StoreUnavailable => 14,
    }
}

fn message(denial: &Denial) -> Cow<'static, str> {
    match denial.cause() {
        Cause::CostAboveLimit { .. } | Cause::QuotaExceeded(_) => match denial.retry_after() {
            Some(wait) => format!("rate limit exceeded; retry after {}s", whole_seconds(wait)).into(),
            None => "rate limit exceeded".into(),
        },
        Cause::Key(error @ KeyError(KeyFault::AddressDenied | KeyFault::Denied)) => error.to_string().into(),
        Cause::Blocked { .. } | Cause::HeldTooLong { .. } | Cause::Key(_) | Cause::Misconfigured(_) => {
            denial.detail().map_or("rate limit key is missing or unusable".into(), Cow::Owned)
        }
        Cause::StoreUnavailable => "rate limiter unavailable".into(),
    }
}

/// The wait in milliseconds as a header value, at most `i32::MAX`. Clients do not retry after a number that they cannot
/// parse.
fn pushback(wait: Duration) -> HeaderValue {
    HeaderValue::from(i32::try_from(whole_millis(wait)).unwrap_or(i32::MAX))
}

fn ascii(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("percent-encoding and base64 are printable ASCII")
}
