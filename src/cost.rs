//! What a request costs.

use std::{fmt, sync::Arc};

use http::request::Parts;

use crate::error::ConfigError;

/// What a request costs: a number, or a closure that computes one from each request.
///
/// Numbers are `u32` (an untyped literal works as well); a closure is `Fn(&Parts) -> u32`. A cost of 0 charges
/// nothing and always passes.
pub trait IntoCost {
    /// Converts into the one form that routes keep.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NegativeCost`].
    fn into_cost(self) -> Result<Cost, ConfigError>;
}

/// The form in which a cost is kept, see [`IntoCost`].
#[derive(Clone)]
pub struct Cost(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Computed(Arc<dyn Fn(&Parts) -> u32 + Send + Sync>),
    Fixed(u32),
}

impl Cost {
    pub(crate) const ONE: Self = Self(Kind::Fixed(1));

    pub(crate) fn of(&self, parts: &Parts) -> u32 {
        match &self.0 {
            Kind::Computed(cost) => cost(parts),
            Kind::Fixed(cost) => *cost,
        }
    }

    /// The cost, if it is the same for every request.
    pub(crate) fn fixed(&self) -> Option<u32> {
        match self.0 {
            Kind::Computed(_) => None,
            Kind::Fixed(cost) => Some(cost),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Computed(_) => f.write_str("computed"),
            Kind::Fixed(cost) => cost.fmt(f),
        }
    }
}

impl IntoCost for u32 {
    fn into_cost(self) -> Result<Cost, ConfigError> {
        Ok(Cost(Kind::Fixed(self)))
    }
}

impl IntoCost for i32 {
    /// Here for literals, which are `i32` when nothing else is asked of them.
    fn into_cost(self) -> Result<Cost, ConfigError> {
        u32::try_from(self).map_err(|_| ConfigError::NegativeCost { cost: self })?.into_cost()
    }
}

impl<F> IntoCost for F
where
    F: Fn(&Parts) -> u32 + Send + Sync + 'static,
{
    fn into_cost(self) -> Result<Cost, ConfigError> {
        Ok(Cost(Kind::Computed(Arc::new(self))))
    }
}
