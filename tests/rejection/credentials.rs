//! Requests without the API key that they are charged to.

use std::error::Error;

use axum::http::Method;
use http::{Response, request::Parts};
use tollgate::rejection::{Denial, EmptyBody, PlainText, Reason};
use tollgate::{ApiKey, HeaderKey, Key, KeyExtractor, MissingKey, key::KeyError};

use crate::support::app::{app, get_passes_with, layer};
use crate::support::http::{Reply, get, get_with, request, send};
use crate::support::says;

fn challenge(reply: &Reply) -> Option<String> {
    reply.header("www-authenticate")
}

#[tokio::test]
async fn a_missing_api_key_is_401_with_a_challenge_and_the_name_of_its_header() {
    for (key, header, expected) in [
        (ApiKey::bearer(), "authorization", "Bearer"),
        (ApiKey::header("X-Api-Key").unwrap(), "x-api-key", r#"ApiKey header="x-api-key""#),
    ] {
        let app = app(layer(1, key));
        let reply = get(&app, "/").await;
        assert_eq!(reply.status, 401);
        assert_eq!(challenge(&reply).as_deref(), Some(expected));
        assert_eq!(reply.header("retry-after"), None);
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
        let detail = format!("The request has no credential in the header {header}.");
        let problem =
            serde_json::json!({ "type": "about:blank", "title": "Unauthorized", "status": 401, "detail": detail });
        assert_eq!(reply.json(), problem);
        assert!(get_passes_with(&app, "/", header, "Bearer s3cret").await);
    }
}

#[tokio::test]
async fn a_header_without_a_bearer_token_is_401_and_two_of_them_are_400() {
    let app = app(layer(9, ApiKey::bearer()));
    for value in ["Basic c2VjcmV0", "Bearer", "secret", ""] {
        let reply = get_with(&app, "/", &[("authorization", value)]).await;
        assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref()), (401, Some("Bearer")), "{value:?}");
        assert!(value.is_empty() || !reply.text().contains("c2VjcmV0") && !reply.text().contains("secret"));
    }
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    let reply = get_with(&app, "/", &twice).await;
    assert_eq!((reply.status.as_u16(), challenge(&reply)), (400, None));
}

#[tokio::test]
async fn the_challenge_of_an_api_key_can_be_set_and_left_out() {
    let realm = ApiKey::bearer().with_challenge(r#"Bearer realm="api.example""#);
    let reply = get(&app(layer(1, realm)), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref()), (401, Some(r#"Bearer realm="api.example""#)));

    let project = ApiKey::header("x-project").unwrap().with_challenge(None);
    let reply = get(&app(layer(1, project)), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply)), (400, None));
    assert_eq!(reply.json()["detail"], "The request has no header x-project.");
}

#[test]
fn a_challenge_without_a_scheme_is_an_error_that_shows_one() {
    for challenge in ["", " ", " Bearer", "realm=\"a\"", "Bearer\r\nx: y", "Bearer \u{e9}", "Bearer,"] {
        let error = ApiKey::bearer().with_challenge(challenge).validate().unwrap_err();
        says(&error, &format!("{challenge:?} is no challenge; write the name of a scheme, "));
        says(&error, r#"Bearer realm="api""#);
    }
    for challenge in ["Bearer", r#"ApiKey realm="a", header="x-key""#, "Negotiate abc="] {
        ApiKey::bearer().with_challenge(challenge).validate().unwrap();
    }
}

/// A tenant's name, for example, says nothing about who sends it.
#[tokio::test]
async fn a_missing_header_that_is_no_credential_is_400_with_its_name() {
    let reply = get(&app(layer(1, HeaderKey::new("X-Tenant").unwrap())), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply)), (400, None));
    assert_eq!(reply.json()["detail"], "The request has no header x-tenant.");
}

#[tokio::test]
async fn the_setting_for_a_missing_key_applies_to_a_credential() {
    let app = app(layer(1, ApiKey::bearer()).on_missing_key(MissingKey::ShareOneKey));
    assert_eq!(get(&app, "/").await.status, 200);
    assert_eq!(get(&app, "/").await.status, 429);
}

#[tokio::test]
async fn every_rejection_has_the_challenge_unless_it_sets_its_own_or_another_status() {
    let limit = || layer(1, ApiKey::bearer());
    let reply = get(&app(limit().with_rejection(PlainText::default())), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref()), (401, Some("Bearer")));
    assert_eq!(reply.text(), "The request has no credential in the header authorization.\n");

    let reply = get(&app(limit().with_rejection(EmptyBody::default())), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref()), (401, Some("Bearer")));

    let reply = send(&app(limit()), request(Method::HEAD, "/", &[])).await;
    assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref(), reply.text()), (401, Some("Bearer"), ""));

    let own = |status: u16, challenge: &'static str| {
        move |_: &Parts, _: &Denial| {
            let response = Response::builder().status(status).header("www-authenticate", challenge);
            response.body(axum::body::Body::empty()).unwrap()
        }
    };
    let reply = get(&app(limit().with_rejection(own(401, "Negotiate"))), "/").await;
    assert_eq!(challenge(&reply).as_deref(), Some("Negotiate"));

    let teapot = |_: &Parts, _: &Denial| Response::builder().status(418).body(axum::body::Body::empty()).unwrap();
    assert_eq!(challenge(&get(&app(limit().with_rejection(teapot)), "/").await), None);
}

/// An extractor of the service reports its own credential.
#[tokio::test]
async fn a_custom_extractor_can_ask_for_its_credential() {
    let session = |_: &Parts| {
        let (header, challenge) = ("x-session".parse().unwrap(), "Session".parse().unwrap());
        Err::<Key, _>(KeyError::missing_credential(header, challenge))
    };
    let reply = get(&app(layer(1, session)), "/").await;
    assert_eq!((reply.status.as_u16(), challenge(&reply).as_deref()), (401, Some("Session")));
    let denial = reply.extensions.get::<Denial>().unwrap();
    assert_eq!(denial.reason(), Reason::Key);
    assert!(denial.source().unwrap().downcast_ref::<KeyError>().unwrap().is_missing());
    assert_eq!(denial.to_string(), "request refused: header x-session has no credential");
}

#[cfg(feature = "grpc")]
#[tokio::test]
async fn a_grpc_call_without_its_api_key_is_unauthenticated() {
    use tollgate::{ExtensionKey, GrpcStatus};

    let call = || {
        let mut call = request(Method::POST, "/", &[("content-type", "application/grpc")]);
        *call.version_mut() = http::Version::HTTP_2;
        call
    };
    let reply = send(&app(layer(1, ApiKey::bearer()).with_rejection(GrpcStatus::default())), call()).await;
    assert_eq!((reply.status.as_u16(), reply.header("grpc-status").as_deref()), (200, Some("16")));
    let message = "The%20request%20has%20no%20credential%20in%20the%20header%20authorization.";
    assert_eq!(reply.header("grpc-message").as_deref(), Some(message));
    assert_eq!(reply.header("grpc-retry-pushback-ms").as_deref(), Some("-1"));
    assert_eq!(challenge(&reply), None, "the status is 200");

    let by_extension = layer(1, ExtensionKey::<u64>::new()).with_rejection(GrpcStatus::default());
    let reply = send(&app(by_extension), call()).await;
    assert_eq!(reply.header("grpc-status").as_deref(), Some("13"), "a fault of the service, not of the caller");
}
