//! Builds a response with content. A response to HEAD has only the fields of the content.

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};

/// Builds a response. A response to HEAD has the same fields and no content. Its `Content-Length` is set here, because
/// a server would derive 0 from the empty body.
pub(super) fn respond<B: From<Bytes>>(
    parts: &Parts,
    status: StatusCode,
    content_type: HeaderValue,
    content: &[u8],
) -> Response<B> {
    let (body, length) = match parts.method {
        Method::HEAD => (Bytes::new(), Some(content.len())),
        _ => (Bytes::copy_from_slice(content), None),
    };
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
