//! Settings by route: the table of [`RateLimitLayer::route`](crate::RateLimitLayer::route).

mod pattern;
mod settings;
mod table;

pub use self::settings::Route;
pub(crate) use self::{settings::Settings, table::RouteTable};
