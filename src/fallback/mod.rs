//! The local fallback: an instance judges by its share of the limit while the store gives no verdict.

mod debts;
mod shares;

pub(crate) use self::{
    debts::pay,
    shares::{Fallback, Instances},
};
