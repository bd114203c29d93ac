//! The plan of a key: policies, or the name of a policy of live limits.

#[cfg(feature = "serde")]
use std::sync::Arc;

use crate::policy::{IntoPolicies, Policies};

/// What a [`PlanSource`](super::PlanSource) answers: one policy, several policies, the name of a policy in the limits
/// of `Plans::of_limits`, or an `Option` of these. With `None` the key has no plan of its own, and the default plan
/// applies. The case of a name is ignored.
///
/// All of these convert into a `Plan`, so most sources return one of them. A source that returns several of them
/// returns a `Plan`.
#[cfg_attr(
    feature = "serde",
    doc = r#"
# Examples

A source of names, with limits of their own for single customers:

```
use tollgate::{Policy, plans::Plan};

fn plan(name: String, own_limit: Option<u64>) -> Result<Plan, tollgate::ConfigError> {
    Ok(match own_limit {
        Some(limit) => Policy::per_minute("enterprise", limit)?.into(),
        None => name.into(),
    })
}
```
"#
)]
#[derive(Clone, Debug)]
pub struct Plan(pub(super) Option<Form>);

/// A plan of a key's own, or the default plan.
#[derive(Clone, Debug)]
pub(super) enum Form {
    Policies(Policies),
    #[cfg(feature = "serde")]
    Named(Arc<str>),
}

impl<P: IntoPolicies> From<P> for Plan {
    fn from(policies: P) -> Self {
        Self(Some(Form::Policies(policies.into_policies())))
    }
}

/// `None` is the default plan.
impl<P: Into<Plan>> From<Option<P>> for Plan {
    fn from(plan: Option<P>) -> Self {
        plan.map_or(Self(None), Into::into)
    }
}

/// The name of a policy.
#[cfg(feature = "serde")]
impl From<String> for Plan {
    fn from(name: String) -> Self {
        Self(Some(Form::Named(name.into())))
    }
}

/// The name of a policy.
#[cfg(feature = "serde")]
impl From<&str> for Plan {
    fn from(name: &str) -> Self {
        Self(Some(Form::Named(name.into())))
    }
}
