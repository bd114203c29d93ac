//! Custom rejections, and the built-in ones besides problem documents.

use std::{convert::Infallible, error::Error, time::Duration};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, request::Parts};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use tollgate::rejection::{Denial, EmptyBody, PlainText, Reason, Rejection};
use tollgate::{GlobalKey, HeaderKey, HeaderStyle, ProblemJson, RateLimitLayer, headers::HeaderWriter, key::KeyError};
use tower::{Layer, service_fn};

use crate::headers::fields::STYLES;
use crate::support::app::{app, down_limiter, get_passes, layer, per_minute};
use crate::support::http::{Reply, get, get_with, request, send};

/// A rejection that sets a header and a body.
fn custom(_: &Parts, denial: &Denial) -> Response {
    Response::builder().status(denial.status()).header("x-own", "1").body(Body::from("slow down")).unwrap()
}

/// Why a request has no usable key.
fn key_error(denial: &Denial) -> &KeyError {
    denial.source().and_then(|source| source.downcast_ref()).unwrap()
}

#[tokio::test]
async fn a_closure_replaces_the_response() {
    let app = app(layer(1, GlobalKey).with_rejection(custom));
    assert!(get_passes(&app, "/").await);
    let reply = get(&app, "/").await;
    assert_eq!((reply.status.as_u16(), reply.text()), (429, "slow down"));
    assert_eq!(reply.header("x-own").as_deref(), Some("1"));
    assert_eq!(reply.header("content-type"), None);
}

#[tokio::test]
async fn headers_that_the_closure_does_not_set_are_added() {
    let app = app(layer(1, GlobalKey).with_rejection(custom));
    assert!(get_passes(&app, "/").await);
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("retry-after").as_deref(), Some("60"));
    assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""p";q=1;w=60"#));
}

/// A Retry-After that is too early is replaced.
#[tokio::test]
async fn headers_that_the_closure_sets_stay() {
    let answer = |parts: &Parts, _: &Denial| {
        let wait = parts.uri.query().unwrap_or("0").to_owned();
        let reply = Response::builder().status(503).header("retry-after", wait).header("cache-control", "private");
        reply.body(Body::empty()).unwrap()
    };
    let app: Router = app(layer(1, GlobalKey).with_rejection(answer));
    assert!(get_passes(&app, "/").await);
    for (wait, sent) in [("3600", "3600"), ("1", "60")] {
        let reply = get(&app, &format!("/?{wait}")).await;
        assert_eq!(reply.status, 503);
        assert_eq!(reply.header("retry-after").as_deref(), Some(sent));
        assert_eq!(reply.header("cache-control").as_deref(), Some("private"));
    }
}

#[tokio::test]
async fn the_closure_sees_the_request_and_the_denial() {
    let answer = |parts: &Parts, denial: &Denial| {
        let agent = parts.headers.get("user-agent").map_or("", |agent| agent.to_str().unwrap());
        let seen = match (denial.reason(), denial.decision()) {
            (Reason::QuotaExceeded, Some(decision)) => {
                let violated: Vec<&str> = decision.violated().map(|policy| policy.policy.name()).collect();
                format!("{violated:?} {:?}", denial.retry_after().unwrap())
            }
            (Reason::Key, None) => key_error(denial).cause().to_owned(),
            other => format!("{other:?}"),
        };
        Response::new(Body::from(format!("{} {} {agent} {seen}", parts.method, parts.uri)))
    };
    let limit = layer(1, HeaderKey::new("user-agent").unwrap()).with_rejection(answer);
    let app = app(limit);
    let post = || request(Method::POST, "/login?next=/", &[("user-agent", "curl")]);
    assert_eq!(send(&app, post()).await.text(), "welcome");
    assert_eq!(send(&app, post()).await.text(), r#"POST /login?next=/ curl ["p"] 60s"#);
    assert_eq!(get(&app, "/").await.text(), "GET /  missing_header");
}

#[tokio::test]
async fn the_closure_learns_no_wait_under_a_style_that_hides_waits() {
    for (style, wait) in [(HeaderStyle::None, "Some(60s)"), (HeaderStyle::Hidden, "None")] {
        let answer = |_: &Parts, denial: &Denial| Response::new(Body::from(format!("{:?}", denial.retry_after())));
        let app = app(layer(1, GlobalKey).with_headers(style).with_rejection(answer));
        assert!(get_passes(&app, "/").await);
        assert_eq!(get(&app, "/").await.text(), wait, "{style:?}");
    }
}

/// A rejection that changes the response to some requests leaves that to others as it is.
fn unchanged(_: &Parts, denial: &Denial) -> Response {
    denial.clone().into_response()
}

/// As [`unchanged`], with a writer of its own.
fn rewritten(parts: &Parts, denial: &Denial) -> Response {
    denial.clone().respond(&ProblemJson::default(), &HeaderWriter::default(), parts)
}

#[tokio::test]
async fn a_closure_that_returns_the_denial_sends_the_fields_of_the_layer_once() {
    for answer in [unchanged as fn(&Parts, &Denial) -> Response, rewritten] {
        for style in STYLES.into_iter().chain([HeaderStyle::Hidden]) {
            let limit = || layer(1, GlobalKey).with_headers(style);
            let (plain, custom) = (app(limit()), app(limit().with_rejection(answer)));
            assert!(get_passes(&plain, "/").await && get_passes(&custom, "/").await);
            let (plain, custom) = (get(&plain, "/").await, get(&custom, "/").await);
            assert_eq!(custom.headers, plain.headers, "{style:?}");
            assert_eq!((custom.status, custom.body), (plain.status, plain.body), "{style:?}");
        }
        let writer = HeaderWriter::default().with_jitter(Duration::from_secs(10));
        let app = app(layer(1, GlobalKey).with_headers(writer).with_rejection(answer));
        assert!(get_passes(&app, "/").await);
        let reply = get(&app, "/").await;
        let wait = reply.header("retry-after").unwrap();
        assert_eq!(reply.header("ratelimit").unwrap(), format!(r#""p";r=0;t={wait}"#));
        let denial = reply.extensions.get::<Denial>().unwrap();
        assert_eq!(denial.retry_after().unwrap().as_secs().to_string(), wait);
    }
}

#[tokio::test]
async fn the_closure_is_called_for_every_kind_of_refusal() {
    let reason = |_: &Parts, denial: &Denial| {
        let reason = match denial.reason() {
            Reason::CostAboveLimit => denial.to_string(),
            Reason::Key => key_error(denial).to_string(),
            Reason::QuotaExceeded => "spent".into(),
            reason => format!("{reason:?}"),
        };
        Response::builder().status(denial.status()).body(Body::from(reason)).unwrap()
    };
    let cost = |parts: &Parts| if parts.uri.path() == "/search" { 7 } else { 1 };
    let limit = layer(1, HeaderKey::new("x-tenant").unwrap()).with_cost_fn(cost);
    let app = app(limit.with_rejection(reason));
    let status_and_text = |reply: Reply| (reply.status.as_u16(), reply.text().to_owned());
    let tenant = [("x-tenant", "a")];
    assert_eq!(status_and_text(get(&app, "/").await), (400, "header x-tenant is missing".into()));
    let above = "request refused: a cost of 7 can never pass policy \"p\", which lets at most 1 through at once";
    assert_eq!(status_and_text(get_with(&app, "/search", &tenant).await), (400, above.into()));
    assert_eq!(status_and_text(get_with(&app, "/", &tenant).await), (200, "home".into()));
    assert_eq!(status_and_text(get_with(&app, "/", &tenant).await), (429, "spent".into()));
}

#[tokio::test]
async fn plain_text_states_the_reason_in_one_line() {
    let plain = PlainText::default();
    let cost = |parts: &Parts| if parts.uri.path() == "/search" { 7 } else { 1 };
    let limit = layer(1, HeaderKey::new("x-tenant").unwrap()).with_cost_fn(cost);
    let limited = app(limit.with_rejection(plain));
    let tenant = [("x-tenant", "a")];
    assert_eq!(get_with(&limited, "/", &tenant).await.status, 200);
    let closed = app(RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_closed().with_rejection(plain));
    for (reply, status, text) in [
        (get_with(&limited, "/", &tenant).await, 429, "rate limit exceeded; retry after 60s\n"),
        (
            get_with(&limited, "/search", &tenant).await,
            400,
            "The request costs 7 units, more than the 1 that policy p lets through at once; it can never pass.\n",
        ),
        (get(&limited, "/").await, 400, "The request has no header x-tenant.\n"),
        (get(&closed, "/").await, 503, "rate limiter unavailable\n"),
    ] {
        assert_eq!((reply.status.as_u16(), reply.text()), (status, text));
        assert_eq!(reply.header("content-type").as_deref(), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    }
    let head = send(&limited, request(Method::HEAD, "/", &tenant)).await;
    assert_eq!((head.status.as_u16(), head.text()), (429, ""));
    assert_eq!(head.header("content-length").as_deref(), Some("37"));
}

#[tokio::test]
async fn an_empty_body_has_the_status_and_the_headers() {
    let forbidden = |parts: &Parts, denial: &Denial| {
        let mut response: Response = EmptyBody::default().reject(parts, denial);
        if denial.reason() == Reason::QuotaExceeded {
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
        response
    };
    let app = app(layer(1, GlobalKey).with_rejection(forbidden));
    assert!(get_passes(&app, "/").await);
    let reply = get(&app, "/").await;
    assert_eq!((reply.status.as_u16(), reply.text()), (403, ""));
    assert_eq!(reply.header("content-type"), None);
    assert_eq!(reply.header("retry-after").as_deref(), Some("60"));
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
}

/// A body that is not `From<Bytes>`, as is common with plain hyper.
type Boxed = BoxBody<Bytes, Infallible>;

async fn boxed<R: Rejection<Boxed>>(rejection: R, method: Method) -> Reply {
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::from("home").boxed())) });
    let service = layer(1, GlobalKey).with_rejection(rejection).layer(inner);
    assert_eq!(send(&service, request(Method::GET, "/", &[])).await.text(), "home");
    send(&service, request(method, "/", &[])).await
}

#[tokio::test]
async fn rejections_can_have_any_body_type() {
    let problem = |parts: &Parts, denial: &Denial| {
        ProblemJson::default().reject(parts, denial).map(|bytes: Bytes| Full::new(bytes).boxed())
    };
    let plain = |parts: &Parts, denial: &Denial| {
        PlainText::default().reject(parts, denial).map(|bytes: Bytes| Full::new(bytes).boxed())
    };
    let problem = boxed(problem, Method::GET).await;
    assert_eq!((problem.status.as_u16(), &problem.json()["status"]), (429, &429.into()));
    assert_eq!(problem.header("retry-after").as_deref(), Some("60"));
    let line = boxed(plain, Method::GET).await;
    assert_eq!((line.status.as_u16(), line.text()), (429, "rate limit exceeded; retry after 60s\n"));
    let head = boxed(plain, Method::HEAD).await;
    assert_eq!((head.text(), head.header("content-length").as_deref()), ("", Some("37")));
}

/// Other requests to a gRPC server, such as those of a browser, need a status of HTTP.
#[cfg(feature = "grpc")]
#[tokio::test]
async fn only_a_post_over_http_2_or_later_is_refused_with_a_grpc_status() {
    use axum::http::Version;

    let rejection = tollgate::GrpcStatus::default().otherwise(PlainText::default());
    let app = app(layer(1, GlobalKey).with_rejection(rejection));
    assert!(get_passes(&app, "/").await);
    for (method, version, status) in [
        (Method::POST, Version::HTTP_2, 200),
        (Method::POST, Version::HTTP_3, 200),
        (Method::POST, Version::HTTP_11, 429),
        (Method::GET, Version::HTTP_2, 429),
    ] {
        let mut call = request(method.clone(), "/", &[("content-type", "application/grpc")]);
        *call.version_mut() = version;
        let reply = send(&app, call).await;
        assert_eq!(reply.status, status, "{method} {version:?}");
        assert_eq!(reply.header("grpc-status").is_some(), status == 200, "{method} {version:?}");
    }
}

/// A layer that translates gRPC-Web leaves the HTTP/1.1 of a browser without TLS.
#[cfg(feature = "grpc")]
#[tokio::test]
async fn a_translated_call_of_grpc_web_is_refused_with_a_grpc_status_over_http_1_too() {
    let app = app(layer(1, GlobalKey).with_rejection(tollgate::GrpcStatus::default()));
    assert!(get_passes(&app, "/").await);
    for (method, te, status) in [
        (Method::POST, "trailers", Some("8")),
        (Method::POST, "Trailers", Some("8")),
        (Method::POST, "gzip", None),
        (Method::GET, "trailers", None),
    ] {
        let call = request(method.clone(), "/", &[("content-type", "application/grpc"), ("te", te)]);
        let reply = send(&app, call).await;
        assert_eq!(reply.status, if status.is_some() { 200 } else { 429 }, "{method} {te}");
        assert_eq!(reply.header("grpc-status").as_deref(), status, "{method} {te}");
    }
}
