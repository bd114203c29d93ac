//! Holds: units that are held until their cost is known.
//!
//! `make` asks for holds, `failure` turns an error into a handle or a denial, `handle` is what the caller gets, and
//! `settle` is the future that ends a handle. `change` sends one change to the store, `unanswered` keeps the ends of
//! holds that have to be sent again, and `sender` sends them. `request` is what the middleware gets, and `slots` renews
//! the slots of concurrency limits.

mod change;
mod failure;
mod handle;
mod make;
mod request;
mod sender;
mod settle;
mod slots;
mod unanswered;

pub(crate) use self::request::{Charged, RequestHolds};
pub use self::{
    handle::{Held, Hold},
    make::HoldFuture,
    settle::SettleFuture,
};
pub(super) use self::{slots::Slots, unanswered::Unanswered};
