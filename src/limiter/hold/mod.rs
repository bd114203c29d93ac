//! Holds: units that are held until their cost is known.
//!
//! `shared` is what the holds of a limiter share. `handle` is what the caller gets, and `settle` is the future that
//! ends it. `request` is what the middleware gets. `change` sends one change to the store, and `late` charges for
//! settlements that come too late. `ends` keeps the ends of holds until they are answered, in the queues of each
//! failure `domain`, and `sending` sends them. `renewals` has the holds that are renewed while they are held, and `age`
//! says until when. `renewing` is what each runtime does for ends and renewals.

mod age;
mod change;
mod domain;
mod ends;
mod handle;
mod late;
mod renewals;
mod renewing;
mod request;
mod sending;
mod settle;

pub(super) use self::ends::{OnChangedCount, SharedHolds};
pub(crate) use self::{
    age::{Charged, OnLongest},
    request::{NameReport, RequestHolds},
};
pub use self::{
    handle::{Hold, HoldAnswer},
    settle::SettleFuture,
};
