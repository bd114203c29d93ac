//! What a store does: the [`Store`] trait and the [`Answer`] that it returns.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    breaker::Breaker, check::Check, error::Error, key::Key, observe::Observer, policy::Policy, store::pending::Pending,
    verdict::Verdict,
};

/// Keeps counts and judges checks against them.
///
/// A store must judge a check **atomically**: all of its charges fit and are paid, or none is. It reports, it never
/// rejects by error; an [`Error`] means that there is no verdict.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "expected `MemoryStore::new()`, `RedisStore::connect(..)?` or a store of your own",
    note = "if this is a `Result`, add `?`; if it is a builder, finish it with `.connect(..)?`"
)]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Judges `check` and, if all of it fits, charges it.
    ///
    /// A count belongs to a key and a policy: find it by [`Key::encoded`] and the policy's name, never by the `Debug`
    /// output of a key, which hides the key.
    ///
    /// The answer owns what it needs. A pending one does nothing before it is polled, and must not send the check
    /// again when its fate is unknown.
    fn check(&self, check: &Check) -> Answer<Verdict>;

    /// Forgets what `key` has spent under `policy`, and a ban. Answers whether there was a count or a ban to forget.
    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool>;

    /// Tells whether checks would be judged now, for [`Limiter::ready`](crate::Limiter::ready).
    ///
    /// Neither the [deadline](Self::deadline) nor the [breaker](Self::breaker) applies to the answer, so it should come
    /// within some seconds by itself. It must not charge anything. Defaults to `Ok`, right for stores that are always
    /// ready.
    fn ready(&self) -> Answer<()> {
        Answer::Ready(Ok(()))
    }

    /// How long the limiter waits for a pending answer, not counting time in which the executor did not run. A
    /// `RedisStore` may take longer for the first connection of a process (`RedisStoreBuilder::first_dial_deadline`).
    ///
    /// Defaults to 50 ms: long enough for a busy network, short enough that nobody notices.
    fn deadline(&self) -> Duration {
        DEFAULT_DEADLINE
    }

    /// Takes the observer of a limiter, for what only the store knows: its calls, its breaker and what is wrong with its
    /// setup. `None` replaces an earlier one: the limiter is [quiet](crate::Limiter::quiet).
    ///
    /// Called when a limiter is made of the store, and whenever its observers change. Decisions and failures are not among
    /// what the store reports, the limiter reports them. Defaults to doing nothing.
    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        let _ = observer;
    }

    /// When the limiter is to stop asking for pending answers for a while.
    ///
    /// Defaults to `None`, never: right for stores that cannot be away.
    fn breaker(&self) -> Option<Breaker> {
        None
    }

    /// Into how many parts the keys are divided that may be away one without the other, as the nodes of a cluster. Each
    /// has a breaker of its own.
    ///
    /// Defaults to 1.
    fn failure_domains(&self) -> usize {
        1
    }

    /// Which part has `key`, from 0. The breaker of a check of several keys is that of the first, unless the store is a
    /// `RedisStore`, which asks the breaker of each part.
    ///
    /// Defaults to 0.
    fn failure_domain_of(&self, key: &Key) -> usize {
        let _ = key;
        0
    }

    /// How many instances share this store, as far as it knows; for
    /// [`Limiter::with_local_discovered`](crate::Limiter::with_local_discovered), which asks from the beginning on.
    ///
    /// Defaults to `None`: it does not know.
    fn instances(&self) -> Option<u32> {
        None
    }
}

pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_millis(50);

/// What a [`Store`] returns: the result itself, or a future of it.
#[derive(Debug)]
pub enum Answer<T> {
    /// The result, known without waiting.
    Ready(Result<T, Error>),
    /// The result, to be waited for.
    Pending(Pending<T>),
}

impl<T> Answer<T> {
    /// Wraps a future. At the deadline it is dropped, and the check gets an [`Error`] of kind
    /// [`Deadline`](crate::ErrorKind::Deadline) that [may have charged](Error::may_have_charged).
    pub fn pending(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self::Pending(Pending::new(future))
    }
}
