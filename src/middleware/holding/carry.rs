//! Which bodies the responses of a layer have, and how they carry holds.

use std::marker::PhantomData;

use http::Response;
use http_body::Body;

use super::{body::HeldBody, tab::Tab};

/// How the responses of a layer carry the holds of their requests: `()` or [`WrappedBody`], the last parameter of
/// [`RateLimitLayer`](crate::RateLimitLayer). Not exported: only this crate implements and calls it.
pub trait CarryHolds<B>: sealed::Sealed {
    /// The body of the layer's responses around a service with bodies of type `B`.
    type Body;

    /// Whether responses can carry a hold.
    fn can_hold() -> bool;

    /// Whether nothing is left to read.
    fn is_end(body: &B) -> bool;

    /// A response that carries no hold.
    fn plain(response: Response<B>) -> Response<Self::Body>;

    /// A response whose body settles the holds.
    fn holding(response: Response<B>, tab: Box<Tab>) -> Response<Self::Body>;
}

/// Responses have a [`HeldBody`] around the body of the service, after
/// [`with_held_body`](crate::RateLimitLayer::with_held_body).
#[derive(Clone, Copy, Debug)]
pub struct WrappedBody(());

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for super::WrappedBody {}
}

/// Responses keep the body type of the service: the default. Bodies of axum carry holds as they are, because such a
/// body can contain any other.
impl<B: 'static> CarryHolds<B> for () {
    type Body = B;

    #[inline]
    fn can_hold() -> bool {
        axum_body::is_axum(PhantomData::<B>)
    }

    fn is_end(body: &B) -> bool {
        axum_body::is_end(body)
    }

    #[inline]
    fn plain(response: Response<B>) -> Response<B> {
        response
    }

    fn holding(response: Response<B>, tab: Box<Tab>) -> Response<B> {
        response.map(|body| axum_body::wrap(body, tab))
    }
}

impl<B: Body> CarryHolds<B> for WrappedBody {
    type Body = HeldBody<B>;

    #[inline]
    fn can_hold() -> bool {
        true
    }

    fn is_end(body: &B) -> bool {
        body.is_end_stream()
    }

    #[inline]
    fn plain(response: Response<B>) -> Response<HeldBody<B>> {
        response.map(|body| HeldBody::new(body, None))
    }

    fn holding(response: Response<B>, tab: Box<Tab>) -> Response<HeldBody<B>> {
        response.map(|body| HeldBody::new(body, Some(tab)))
    }
}

#[cfg(feature = "axum")]
mod axum_body {
    use std::{
        any::{Any, TypeId},
        marker::PhantomData,
    };

    use super::{Body, HeldBody, Tab};

    pub(super) fn is_axum<B: 'static>(_: PhantomData<B>) -> bool {
        TypeId::of::<B>() == TypeId::of::<axum::body::Body>()
    }

    pub(super) fn is_end<B: 'static>(body: &B) -> bool {
        (body as &dyn Any).downcast_ref::<axum::body::Body>().is_some_and(Body::is_end_stream)
    }

    pub(super) fn wrap<B: 'static>(body: B, tab: Box<Tab>) -> B {
        let mut body = Some(body);
        if let Some(axum) = (&mut body as &mut dyn Any).downcast_mut::<Option<axum::body::Body>>() {
            *axum = axum.take().map(|body| axum::body::Body::new(HeldBody::new(body, Some(tab))));
        }
        body.expect("a body is taken out only to be wrapped")
    }
}

/// Without axum, no body can contain any other.
#[cfg(not(feature = "axum"))]
mod axum_body {
    use std::marker::PhantomData;

    use super::Tab;

    pub(super) fn is_axum<B>(_: PhantomData<B>) -> bool {
        false
    }

    pub(super) fn is_end<B>(_: &B) -> bool {
        true
    }

    pub(super) fn wrap<B>(body: B, _: Box<Tab>) -> B {
        body
    }
}
