//! The local fallback: an instance judges by its share of the limit while the store gives no verdict.
//!
//! `local` judges by shares and counts what the store admits, `shares` divides policies by the number of instances,
//! `debts` remembers what the store has yet to be charged.

mod debts;
mod local;
mod shares;

pub(crate) use self::{
    debts::{Debt, Settlement},
    local::Fallback,
    shares::Instances,
};
