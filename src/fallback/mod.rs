//! The local fallback: an instance judges by its share of the limit while the store gives no verdict.
//!
//! `local` judges by shares and counts what the store admits, `shares` divides policies by the number of instances,
//! `debts` and `domain_debts` remember what the store has yet to be charged, `settlement` charges it, `unsure` knows
//! the counts of which the store may lack units, and `reserved` is the room of checks that the store has not answered
//! yet.

mod debts;
mod domain_debts;
mod local;
mod settlement;
mod shares;

pub(crate) use self::{
    domain_debts::Debt,
    local::Fallback,
    settlement::Settlement,
    shares::{Instances, Reservation},
};
