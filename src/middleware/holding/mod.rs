//! Holds of requests: made before the service runs, settled when its response says so or its body has ended.
//!
//! `tab` has the holds of a request, `bill` what the handler says about its cost, `settle` what the response says, and
//! `body` and `carry` how a response body carries the rest.

mod bill;
mod body;
mod carry;
mod settle;
mod tab;

pub(super) use self::tab::{Settling, Tab};
pub use self::{
    bill::Bill,
    body::HeldBody,
    carry::{CarryHolds, SameBody, WrappedBody},
    settle::Settle,
};
