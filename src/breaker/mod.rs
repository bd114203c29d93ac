//! The circuit breaker: it stops asking a store that does not answer.

mod machine;
mod notifier;
mod partitioned;
mod settings;
mod window;

pub use self::settings::Breaker;
pub(crate) use self::{
    partitioned::{Breakers, Permit},
    window::CallOutcome,
};
