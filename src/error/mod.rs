//! Errors: of a configuration ([`ConfigError`]) and of a check without a verdict ([`Error`]).

mod check;
mod words;

use std::{borrow::Cow, error, fmt};

pub use self::check::{Error, ErrorKind};
pub(crate) use self::{
    check::StoreEvidence,
    words::{OneLine, in_words, value_of, word_of},
};

/// A configuration that cannot work, returned by a constructor, or by `validated` for the first mistake of all setters.
///
/// The message contains the wrong value, unless the value is secret, and says what to write instead. `Debug` writes the
/// message too, because it is what a `main` that returns the error prints.
///
/// # Examples
///
/// ```
/// use tollgate::Policy;
///
/// let error = Policy::per_minute("per client", 60).unwrap_err();
/// println!("{error}"); // says which characters a name may have
///
/// let sliding = Policy::per_minute("per-client", 60).unwrap().with_burst(5);
/// assert_eq!(sliding.validated().unwrap_err().policy_name(), Some("per-client"));
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct ConfigError {
    message: Cow<'static, str>,
    policy: Option<Box<str>>,
}

impl ConfigError {
    /// A mistake that is not one of a policy.
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), policy: None }
    }

    /// A mistake of a policy. The message begins with the policy's name.
    pub(crate) fn of_policy(policy: &str, message: impl fmt::Display) -> Self {
        Self::new(format!("policy {policy:?}: {message}")).about(policy)
    }

    /// Adds the name of the policy that the message contains.
    pub(crate) fn about(self, policy: &str) -> Self {
        Self { policy: Some(policy.into()), ..self }
    }

    /// The name of the policy that the mistake is about; `None` if it is about no policy.
    pub fn policy_name(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// A plain charge under a concurrency limit would never be given back.
    pub(crate) fn concurrency_needs_hold(policy: &str) -> Self {
        let message = format!(
            "policy {policy:?} limits how much runs at once, and a plain check would never give its units back; \
             call `Limiter::hold` or `Limiter::acquire_hold`, or use the policy in a `RateLimitLayer`, or as the \
             first one of a `ThrottleLayer` with `hold_until_end`"
        );
        Self::new(message).about(policy)
    }

    /// A fixed cost above the limit can never pass.
    pub(crate) fn cost_above_limit(policy: &str, cost: u64, limit: u64, shards: u32) -> Self {
        let message = match shards {
            1 => format!(
                "a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at once; \
                 raise the limit or lower the cost"
            ),
            _ => format!(
                "a cost of {cost} can never pass policy {policy:?}, whose smallest of {shards} shards lets at most \
                 {limit} through at once; raise the limit, lower the cost or use fewer shards"
            ),
        };
        Self::new(message).about(policy)
    }

    /// Two policies of one name would share their counts.
    pub(crate) fn duplicate_policy(policy: &str) -> Self {
        let message =
            format!("two policies of one check are called {policy:?} and would share their counts; rename one");
        Self::new(message).about(policy)
    }

    pub(crate) fn invalid_policy_name(name: &str) -> Self {
        Self::new(format!(
            "policy name {name:?} is not usable in a header: start with a letter or `*`, go on with letters, \
             digits or any of !#$%&'*+-.^_`|~:/ up to 64 characters"
        ))
    }

    /// A layer without a policy would limit nothing.
    pub(crate) fn no_policy() -> Self {
        Self::new("no policy, so nothing would be limited; give at least one")
    }

    #[cfg(feature = "plans")]
    pub(crate) fn unlimited_default_plan() -> Self {
        Self::new(
            "the default plan is unlimited, and each key has it until its first look-up has ended, so no client would \
             be limited after a start; use a default plan with a limit",
        )
    }

    pub(crate) fn local_without_fallback() -> Self {
        Self::new(
            "fail_local needs a limiter with a local fallback: call `Limiter::with_local_fallback(MemoryStore::new(), \
             instances)` or `Limiter::with_local_fallback(MemoryStore::new(), None)` first",
        )
    }

    pub(crate) fn policy_without_holds(policy: &str) -> Self {
        let message = format!("policy {policy:?} has no holds; call `.with_holds(HoldSettings::new())` on it");
        Self::new(message).about(policy)
    }

    pub(crate) fn store_without_holds() -> Self {
        Self::new(
            "the store has no holds; use a `MemoryStore` or a `RedisStore`, or implement `Store::has_holds` and \
             `Store::change_hold`",
        )
    }

    pub(crate) fn store_without_alternatives() -> Self {
        Self::new(
            "the store cannot charge the first of several policies; use a `MemoryStore` or a `RedisStore`, or implement \
             `Store::has_alternatives`",
        )
    }

    pub(crate) fn store_must_be_awaited() -> Self {
        Self::new(
            "try_check needs a store that answers at once, and this one has to wait; write `.check(..).await`, or use \
             a `MemoryStore`",
        )
    }

    pub(crate) fn too_many_charges(most: usize) -> Self {
        Self::new(format!("a check may have at most {most} charges; use fewer policies"))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The message: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for ConfigError {}

/// The first mistake of a value whose setters return no `Result`: the one that its author has to correct first.
///
/// Boxed, because most values have none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct FirstMistake(Option<Box<ConfigError>>);

impl FirstMistake {
    pub(crate) const NONE: Self = Self(None);

    /// Keeps a mistake, unless there is one.
    pub(crate) fn add(&mut self, mistake: ConfigError) {
        self.0.get_or_insert_with(|| Box::new(mistake));
    }

    /// This mistake if it is one of `present`, otherwise the first of them: for settings that a later one may mend.
    pub(crate) fn of(&self, present: Vec<ConfigError>) -> Self {
        let kept = present.iter().position(|mistake| self.0.as_deref() == Some(mistake));
        Self(present.into_iter().nth(kept.unwrap_or(0)).map(Box::new))
    }

    /// Returns the value of a setting, or keeps its mistake.
    pub(crate) fn keep<T>(&mut self, setting: Result<T, ConfigError>) -> Option<T> {
        setting.map_err(|mistake| self.add(mistake)).ok()
    }

    /// The mistake as the error of a value that has one.
    #[inline]
    pub(crate) fn found(&self) -> Result<(), ConfigError> {
        self.0.as_deref().map_or(Ok(()), |mistake| Err(mistake.clone()))
    }
}
