//! How a response says how the holds of its request end: the handler writes it, and the layer's closure reads it.

use std::panic::resume_unwind;

use axum::response::Response;
use http::{HeaderValue, response};
use tollgate::middleware::Settlement;

use super::script::{Panics, Script, Settles};

/// The header of a response that says how its holds end.
const SETTLE: &str = "x-settle";

/// Writes what the handler wants.
pub(super) fn write(script: &Script, response: &mut Response) {
    let settle = match script.settles {
        _ if script.panics == Panics::Settling => Some(HeaderValue::from_static("panic")),
        Settles::AtEnd => None,
        Settles::Charge(units) => Some(HeaderValue::from(units)),
        Settles::Keep => Some(HeaderValue::from_static("keep")),
        Settles::Release => Some(HeaderValue::from_static("release")),
    };
    if let Some(settle) = settle {
        response.headers_mut().insert(SETTLE, settle);
    }
}

/// What the handler has written into the response.
pub(super) fn read(response: &response::Parts) -> Settlement {
    match response.headers.get(SETTLE).and_then(|settle| settle.to_str().ok()) {
        Some("keep") => Settlement::Held,
        Some("release") => Settlement::Nothing,
        Some("panic") => resume_unwind(Box::new("a closure panics")),
        Some(units) => units.parse().map_or(Settlement::AtEnd, Settlement::Units),
        None => Settlement::AtEnd,
    }
}
