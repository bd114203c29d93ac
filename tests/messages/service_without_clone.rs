//! A service that cannot be cloned.

use tollgate::{GlobalKey, RateLimitLayer, middleware::RateLimit};
use tower::Layer;

pub struct Connection;

pub fn limited(limit: RateLimitLayer<GlobalKey>, connection: Connection) -> RateLimit<Connection, GlobalKey> {
    limit.layer(connection)
}
