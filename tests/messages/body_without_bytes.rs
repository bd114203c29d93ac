//! A service whose bodies are not made of bytes, under the default rejection.

use std::convert::Infallible;

use http::{Request, Response};
use tollgate::{GlobalKey, RateLimitLayer};
use tower::{Layer, service_fn, util::BoxCloneService};

pub struct Page;

pub fn limited(limit: RateLimitLayer<GlobalKey>) -> BoxCloneService<Request<()>, Response<Page>, Infallible> {
    let pages = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Page)) });
    BoxCloneService::new(limit.layer(pages))
}
