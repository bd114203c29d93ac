//! Who sends a request, and who pays for it.

use axum::http::{StatusCode, header::AUTHORIZATION};
use axum::response::{IntoResponse, Response};
use axum::{extract::Request, middleware::Next};
use tollgate::Key;

/// The name of an API key. The key itself is a secret, and its name is not.
#[derive(Clone, Copy)]
pub(crate) struct KeyName(pub(crate) &'static str);

#[derive(Clone, Copy)]
pub(crate) struct Team(pub(crate) &'static str);

#[derive(Clone, Copy)]
pub(crate) struct Organisation(pub(crate) &'static str);

impl From<&KeyName> for Key {
    fn from(name: &KeyName) -> Key {
        Key::from(name.0)
    }
}

impl From<&Team> for Key {
    fn from(team: &Team) -> Key {
        Key::from(team.0)
    }
}

impl From<&Organisation> for Key {
    fn from(organisation: &Organisation) -> Key {
        Key::from(organisation.0)
    }
}

/// Finds the account of an API key. A gateway reads its accounts from a database.
pub(crate) async fn authenticate(mut request: Request, next: Next) -> Response {
    let (name, team) = match request.headers().get(AUTHORIZATION).map(|value| value.as_bytes()) {
        Some(b"Bearer sk-ann") => ("ann", "search"),
        Some(b"Bearer sk-bob") => ("bob", "search"),
        Some(b"Bearer sk-eve") => ("eve", "ads"),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    let extensions = request.extensions_mut();
    extensions.insert(KeyName(name));
    extensions.insert(Team(team));
    extensions.insert(Organisation("acme"));
    next.run(request).await
}
