//! Holds of requests: made before the service runs, settled when its response says so or its body has ended.
//!
//! `tab` has the holds of a request, `bill` what the handler says about its cost, `settle` what the response says,
//! `body` and `carry` how a response body carries the rest, `guard` how work that outlives the request keeps
//! it, and `longest` what happens to a request that holds units for too long.

mod bill;
mod body;
mod guard;
mod tab;

pub use self::{
    bill::Bill,
    body::{HeldBody, WrappedBody},
    guard::{HoldGuard, Settlement},
    tab::HeldTooLong,
};
pub(super) use self::{body::CarryHolds, guard::Settling, tab::Tab};
