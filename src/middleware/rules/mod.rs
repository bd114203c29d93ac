//! The rules of a layer: what it charges, what happens without a verdict, and the fields that it writes. A file of
//! limits can say all of them.

#[cfg(feature = "serde")]
mod follower;
mod value;

use std::{fmt, ops::Deref};

use self::value::Judged;
#[cfg(feature = "serde")]
use std::sync::Arc;

#[cfg(feature = "serde")]
pub(crate) use self::follower::{Follower, Followers, RulesOwner};
pub(crate) use self::value::Rules;

/// The rules of a layer, as the layer holds them.
#[derive(Clone)]
#[cfg_attr(
    feature = "serde",
    expect(
        clippy::large_enum_variant,
        reason = "inline, so that a request reads fixed rules without a further pointer"
    )
)]
pub(crate) enum RulesSource {
    Fixed(Rules),
    #[cfg(feature = "serde")]
    Live(Arc<Follower>),
}

/// The rules that one request uses from its start to its end.
pub(crate) enum LoadedRules<'a> {
    Borrowed(&'a Rules),
    #[cfg(feature = "serde")]
    Loaded(arc_swap::Guard<Arc<Rules>>),
}

/// The rules of a request that waits for its decision. Empty if the layer has fixed rules, which live as long as the
/// layer's settings.
pub(crate) struct KeptRules(#[cfg(feature = "serde")] Option<Arc<Rules>>);

impl RulesSource {
    /// The rules for a request that starts now. Costs one atomic load if the rules can be replaced.
    #[inline]
    pub(crate) fn load(&self) -> LoadedRules<'_> {
        match self {
            Self::Fixed(rules) => LoadedRules::Borrowed(rules),
            #[cfg(feature = "serde")]
            Self::Live(follower) => LoadedRules::Loaded(follower.load()),
        }
    }

    /// Makes a change that also applies to all rules that replace the present ones.
    pub(in crate::middleware) fn change(&mut self, change: impl Fn(&mut Rules)) {
        match self {
            Self::Fixed(rules) => {
                change(rules);
                rules.judged = Judged::default();
            }
            #[cfg(feature = "serde")]
            Self::Live(follower) => *self = Self::Live(follower.changed(change)),
        }
    }
}

impl LoadedRules<'_> {
    /// The rules for the time after a wait.
    pub(crate) fn keep(self) -> KeptRules {
        match self {
            #[cfg(not(feature = "serde"))]
            Self::Borrowed(_) => KeptRules(),
            #[cfg(feature = "serde")]
            Self::Borrowed(_) => KeptRules(None),
            #[cfg(feature = "serde")]
            Self::Loaded(rules) => KeptRules(Some(arc_swap::Guard::into_inner(rules))),
        }
    }
}

impl KeptRules {
    /// The kept rules, or the fixed rules of `source`.
    pub(crate) fn load<'a>(&'a self, source: &'a RulesSource) -> LoadedRules<'a> {
        #[cfg(feature = "serde")]
        if let Some(rules) = &self.0 {
            return LoadedRules::Borrowed(rules);
        }
        source.load()
    }
}

impl Deref for LoadedRules<'_> {
    type Target = Rules;

    #[inline]
    fn deref(&self) -> &Rules {
        match self {
            Self::Borrowed(rules) => rules,
            #[cfg(feature = "serde")]
            Self::Loaded(rules) => rules,
        }
    }
}

impl fmt::Debug for RulesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}
