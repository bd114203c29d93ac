//! What happens when the store cannot answer: the [`FailurePolicy`] and the circuit [`Breaker`].

mod policy;

pub use self::policy::FailurePolicy;
pub use crate::breaker::settings::Breaker;
