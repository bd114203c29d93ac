//! The plan of a key: policies, or the name of a policy of live limits.

#[cfg(feature = "serde")]
use std::sync::Arc;

use crate::policy::{IntoPolicies, Policies};

/// The plan of a key, as a [`PlanSource`](super::PlanSource) answers: policies, or the name of a policy of live limits.
///
/// Most sources return one of the two, and need no `Plan`: a [`Policy`](crate::Policy) or a `String` converts by
/// itself. A source that returns either of them returns a `Plan`.
#[cfg_attr(
    feature = "serde",
    doc = r#"
# Examples

A source of names, with limits of their own for single customers:

```
use tollgate::{Policy, plans::Plan};

fn plan(name: String, own_limit: Option<u32>) -> Result<Plan, tollgate::ConfigError> {
    Ok(match own_limit {
        Some(limit) => Plan::of(Policy::per_minute("enterprise", limit)?),
        None => Plan::named(name),
    })
}
```
"#
)]
#[derive(Clone, Debug)]
pub struct Plan(pub(super) Form);

#[derive(Clone, Debug)]
pub(super) enum Form {
    Policies(Policies),
    #[cfg(feature = "serde")]
    Named(Arc<str>),
}

impl Plan {
    /// Creates the plan of these policies.
    pub fn of(policies: impl IntoPolicies) -> Self {
        Self(Form::Policies(policies.into_policies()))
    }

    /// Creates the plan of the policy with this name in the limits of
    /// [`Plans::of_limits`](super::Plans::of_limits). The case of the name is ignored.
    #[cfg(feature = "serde")]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Form::Named(name.into().into()))
    }
}

/// The answer of a [`PlanSource`](super::PlanSource): one policy, several policies, the name of a policy of live
/// limits, a [`Plan`], or an `Option` of these. With `None` the key has no plan of its own, and the default plan
/// applies.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a plan",
    label = "expected a `Policy`, `[Policy; N]`, `Vec<Policy>`, the name of a policy, or an `Option` of one of these",
    note = "names of policies need `Plans::of_limits`, and feature `serde`"
)]
pub trait IntoPlan {
    /// Converts into a plan; `None` stands for the default plan.
    fn into_plan(self) -> Option<Plan>;
}

impl<P: IntoPolicies> IntoPlan for P {
    fn into_plan(self) -> Option<Plan> {
        Some(Plan::of(self))
    }
}

impl<P: IntoPolicies> IntoPlan for Option<P> {
    fn into_plan(self) -> Option<Plan> {
        self.map(Plan::of)
    }
}

impl IntoPlan for Plan {
    fn into_plan(self) -> Option<Plan> {
        Some(self)
    }
}

impl IntoPlan for Option<Plan> {
    fn into_plan(self) -> Option<Plan> {
        self
    }
}

#[cfg(feature = "serde")]
impl IntoPlan for String {
    fn into_plan(self) -> Option<Plan> {
        Some(Plan::named(self))
    }
}

#[cfg(feature = "serde")]
impl IntoPlan for Option<String> {
    fn into_plan(self) -> Option<Plan> {
        self.map(Plan::named)
    }
}

#[cfg(feature = "serde")]
impl IntoPlan for &str {
    fn into_plan(self) -> Option<Plan> {
        Some(Plan::named(self))
    }
}

#[cfg(feature = "serde")]
impl IntoPlan for Option<&str> {
    fn into_plan(self) -> Option<Plan> {
        self.map(Plan::named)
    }
}
