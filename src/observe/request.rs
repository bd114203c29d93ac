//! The request behind an event: its method and its route.

use http::Method;

/// The request that a layer has checked or refused, without anything that identifies its client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ObservedRequest<'a> {
    /// The HTTP method; `other` for a method that RFC 9110 and RFC 5789 do not define.
    pub(super) method: &'static str,
    /// The template of the router or the path of an entry of the layer, never the path that the client has sent.
    pub(super) route: Option<&'a str>,
}

impl<'a> ObservedRequest<'a> {
    pub(crate) fn new(method: &Method, route: Option<&'a str>) -> Self {
        Self { method: name(method), route }
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
