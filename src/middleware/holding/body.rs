//! Which bodies the responses of a layer have, and how they carry the holds of their requests.

use std::task::{Context, Poll, ready};
use std::{any::Any, cmp::min, error::Error, fmt, marker::PhantomData, pin::Pin};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::Tab;

pin_project! {
    /// The response body of a layer with [`with_held_body`](crate::RateLimitLayer::with_held_body): the body of the
    /// service, which settles the holds of its request when it has ended, failed or been dropped, exactly once.
    ///
    /// Data, trailers, the size hint and the end are those of the body of the service. Frames of more than 64 KiB of
    /// [`Bytes`] are passed in pieces of that size while something is held: a server takes a piece when it has room, so
    /// the holds of a large response do not end long before its client has got it.
    ///
    /// Errors of the body of the service are boxed. If a hold of the request reaches its [longest
    /// age](crate::policy::HoldSettings::with_longest), the body fails with a [`HeldTooLong`](super::HeldTooLong), so
    /// that the server cuts the response off.
    ///
    /// # Examples
    ///
    /// hyper takes the service as it is; each response body has the type `HeldBody<Full<Bytes>>`.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http::{Request, Response, response::Parts};
    /// use http_body_util::{BodyExt, Full};
    /// use tollgate::{
    ///     GlobalKey, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer,
    ///     middleware::{HeldBody, Settlement},
    ///     policy::HoldSettings,
    /// };
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// async fn hello(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    ///     Ok(Response::new(Full::from("hello")))
    /// }
    ///
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens =
    ///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
    /// let limit = RateLimitLayer::new(limiter.clone(), tokens.clone(), GlobalKey)
    ///     .with_cost(100)
    ///     .with_settlement(|_: &Parts| Settlement::Units(7))
    ///     .with_held_body()
    ///     .validated()?;
    /// let service = ServiceBuilder::new().layer(limit).service(service_fn(hello));
    ///
    /// let response: Response<HeldBody<Full<Bytes>>> =
    ///     service.oneshot(Request::new(())).await?;
    /// assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
    /// # Ok(())
    /// # }
    /// ```
    pub struct HeldBody<B> {
        #[pin]
        body: B,
        tab: Option<Box<Tab>>,
        // What is left of a large frame.
        rest: Option<Bytes>,
        // Whether a hold was too old.
        is_cut_off: bool,
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<B> HeldBody<B> {
    pub(super) fn new(body: B, tab: Option<Box<Tab>>) -> Self {
        Self { body, tab, rest: None, is_cut_off: false }
    }
}

impl<B> Body for HeldBody<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    #[inline]
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let mut this = self.project();
        if let Some(tab) = this.tab.as_ref().filter(|tab| tab.can_get_too_old()) {
            if let Some(error) = tab.poll_too_old(cx) {
                (*this.tab, *this.rest, *this.is_cut_off) = (None, None, true);
                return Poll::Ready(Some(Err(error.into())));
            }
        } else if *this.is_cut_off {
            return Poll::Ready(None);
        }
        let mut frame = match next_piece(this.rest) {
            Some(piece) => Some(Ok(piece)),
            None => ready!(this.body.as_mut().poll_frame(cx)),
        };
        if this.tab.is_some() {
            if let Some(Ok(frame)) = &mut frame
                && this.rest.is_none()
            {
                *this.rest = cut_off(frame);
            }
            // A server that knows that this frame is the last one does not poll again.
            let is_last = || this.rest.is_none() && this.body.is_end_stream();
            if !matches!(frame, Some(Ok(_))) || is_last() {
                *this.tab = None;
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_cut_off || self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some(rest) = &self.rest {
            let rest = rest.len() as u64;
            // The upper bound first: it must not be below the lower one.
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper.saturating_add(rest));
            }
            hint.set_lower(hint.lower().saturating_add(rest));
        }
        hint
    }
}

/// Rejections make such a body, because a layer outside another one refuses requests with it.
impl<B: From<Bytes>> From<Bytes> for HeldBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self::new(B::from(bytes), None)
    }
}

impl<B: Default> Default for HeldBody<B> {
    fn default() -> Self {
        Self::new(B::default(), None)
    }
}

impl<B: fmt::Debug> fmt::Debug for HeldBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBody").field("body", &self.body).field("is_held", &self.tab.is_some()).finish()
    }
}

/// The largest piece, in bytes. A server takes the next one when it has room: hyper buffers about 400 kB of a response.
const LARGEST: usize = 64 << 10;

/// Takes what is beyond one piece out of a frame of [`Bytes`]. Other data stays whole: it has no cheap parts.
fn cut_off<D: 'static>(frame: &mut Frame<D>) -> Option<Bytes> {
    let data = (frame.data_mut()? as &mut dyn Any).downcast_mut::<Bytes>()?;
    (data.len() > LARGEST).then(|| data.split_off(LARGEST))
}

/// The next piece of what was cut off.
fn next_piece<D: 'static>(rest: &mut Option<Bytes>) -> Option<Frame<D>> {
    let mut bytes = rest.take()?;
    let mut piece = Some(bytes.split_to(min(LARGEST, bytes.len())));
    *rest = Some(bytes).filter(|bytes| !bytes.is_empty());
    let piece = (&mut piece as &mut dyn Any).downcast_mut::<Option<D>>().and_then(Option::take);
    Some(Frame::data(piece.expect("only frames of `Bytes` are cut")))
}

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
