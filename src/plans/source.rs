//! Sources of plans, which are asynchronous look-ups by key; and the plan of a key: policies, or the name of a policy
//! of live limits.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::key::Key;
use crate::policy::{IntoPolicies, Policies};

/// Looks the plan of a key up: in a database, a billing service or a file. [`Plans`](super::Plans) caches the answers.
///
/// The key is the one that the layer charges. [`Key::encoded`] is the subject itself for an integer, a UUID, and text
/// of at most 64 letters, digits and `. : _ - / @ + = , ~`. Charge other accounts by their id.
///
/// A closure `Fn(Key) -> impl Future` that returns the same `Result` is a source too.
///
/// The look-up runs in a task of its own, so it may take longer than a request. A panic in it counts as a failed
/// look-up. Dropping the future of a look-up has to be safe, because a look-up that takes too long is dropped.
///
/// # Examples
///
/// ```
/// use std::{collections::HashMap, io};
/// use tollgate::{Key, Policy, plans::PlanSource};
///
/// struct Accounts {
///     // In a service: a connection pool.
///     plans: HashMap<Key, &'static str>,
///     paid: Policy,
/// }
///
/// impl PlanSource for Accounts {
///     type Plan = Option<Policy>; // `None`: an account without a plan of its own
///     type Error = io::Error;
///
///     async fn plan(&self, account: &Key) -> Result<Option<Policy>, io::Error> {
///         match self.plans.get(account) {
///             None => Ok(None),
///             Some(&"paid") => Ok(Some(self.paid.clone())),
///             Some(other) => {
///                 Err(io::Error::other(format!("unknown plan {other}")))
///             }
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of plans",
    label = "expected a `PlanSource` or a closure `Fn(Key) -> impl Future<Output = Result<impl Into<Plan>, E>> + Send`",
    note = "a closure takes the `Key` by value, and its future may not borrow from the closure: clone what it uses"
)]
pub trait PlanSource: Send + Sync + 'static {
    /// The plan of a key: a [`Policy`](crate::Policy), an array or `Vec` of them, the name of a policy for
    /// [`Plans::of_limits`](super::Plans::of_limits), or an `Option` of these.
    type Plan: Into<Plan>;

    /// Why a look-up failed. Its `Display` appears in logs, so it must not contain the key.
    type Error: fmt::Display;

    /// Looks the plan of `key` up. In an implementation, write `async fn plan(&self, key: &Key) -> Result<..>`.
    fn plan(&self, key: &Key) -> impl Future<Output = Result<Self::Plan, Self::Error>> + Send;
}

impl<F, L, P, E> PlanSource for F
where
    F: Fn(Key) -> L + Send + Sync + 'static,
    L: Future<Output = Result<P, E>> + Send,
    P: Into<Plan>,
    E: fmt::Display,
{
    type Plan = P;
    type Error = E;

    fn plan(&self, key: &Key) -> impl Future<Output = Result<P, E>> + Send {
        self(key.clone())
    }
}

/// The answer of a look-up, or the text of its error.
pub(super) type Found = Result<Option<Form>, String>;

/// A look-up that has not been polled yet, or is on its way.
pub(super) type LookUp = Pin<Box<dyn Future<Output = Found> + Send>>;

/// A [`PlanSource`] without its types.
pub(super) trait AnySource: Send + Sync {
    /// Starts a look-up. The source is called when the future is polled first, so a panic of the source is a panic of
    /// the future.
    fn look_up(self: Arc<Self>, key: Key) -> LookUp;
}

impl<S: PlanSource> AnySource for S {
    fn look_up(self: Arc<Self>, key: Key) -> LookUp {
        Box::pin(async move {
            self.plan(&key).await.map(|plan| Into::<Plan>::into(plan).0).map_err(|error| error.to_string())
        })
    }
}

/// What a [`PlanSource`] answers: one policy, several policies, the name of a policy in the limits
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
