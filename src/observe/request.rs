//! The request behind an event: its method and its route.

use http::Method;

/// The request that a layer has checked or refused, without anything that identifies its client.
///
/// Both parts have few values, so they can be labels of metrics: a client cannot make up methods or routes.
///
/// # Examples
///
/// ```
/// use tollgate::observe::{self, Event};
///
/// // Prints which routes refuse requests.
/// let print_routes = observe::from_fn(|event| {
///     if let Event::Decision(decided) = event
///         && !decided.decision.is_allowed()
///         && let Some(request) = decided.request
///     {
///         println!("{} {} is {}", request.method, request.route_or_unmatched(), decided.outcome());
///     }
/// });
/// # let _ = print_routes;
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ObservedRequest<'a> {
    /// The HTTP method; `other` for a method that RFC 9110 and RFC 5789 do not define.
    pub method: &'static str,
    /// The template that axum's router has matched (`/users/{id}`); without one, the path of the
    /// [entry](crate::RateLimitLayer::route) of the layer that covers the request (`/mcp/{*rest}`). `None` if there is
    /// neither. Never the path that the client has sent.
    pub route: Option<&'a str>,
}

impl<'a> ObservedRequest<'a> {
    pub(crate) fn new(method: &Method, route: Option<&'a str>) -> Self {
        Self { method: name(method), route }
    }

    /// The route, or `unmatched` if there is none, for labels of metrics.
    pub fn route_or_unmatched(&self) -> &'a str {
        self.route.unwrap_or("unmatched")
    }

    pub(super) fn to_stored(self) -> StoredRequest {
        StoredRequest { method: self.method, route: self.route.map(Box::from) }
    }
}

/// A request that an event refers to after the request has gone to its handler.
#[derive(Clone, Debug)]
pub(super) struct StoredRequest {
    method: &'static str,
    route: Option<Box<str>>,
}

impl StoredRequest {
    pub(super) fn get(&self) -> ObservedRequest<'_> {
        ObservedRequest { method: self.method, route: self.route.as_deref() }
    }
}

/// The name of a method. Clients can make up any number of other methods.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::CONNECT => "CONNECT",
        Method::DELETE => "DELETE",
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::TRACE => "TRACE",
        _ => "other",
    }
}
