//! The rules of a layer: what it charges, what happens without a verdict, and the fields that it writes. A file of
//! limits can say all of them.

#[cfg(feature = "serde")]
mod follower;
mod source;
mod value;

#[cfg(feature = "serde")]
pub(crate) use self::follower::{Follower, Followers, RulesOwner};
pub(super) use self::source::{KeptRules, RulesSource};
pub(crate) use self::value::Rules;
