//! The circuit breaker, which stops asking a store that does not answer.
//!
//! `settings` has the settings, `machine` the three states of one failure domain, `breakers` one machine for each
//! failure domain of a store, `window` the recent failures, `notifier` the reports.

mod breakers;
mod machine;
pub(crate) mod settings;
mod window;

pub(crate) use self::{
    breakers::{Breakers, Permit},
    window::CallOutcome,
};
