//! An item of a feature that is not enabled.

pub use tollgate::plans::Plans;
