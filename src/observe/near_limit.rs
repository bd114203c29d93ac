//! The event of a key that comes near a limit.

use crate::{
    observe::{Fingerprint, ObservedKey},
    policy::Policy,
};

/// A key that has spent a policy's [near limit](Policy::with_near_limit).
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::{Limiter, MemoryStore, Policy, observe::{Event, Observer}};
///
/// #[derive(Default)]
/// struct Warnings(Mutex<Vec<String>>);
///
/// impl Observer for Warnings {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::NearLimit(near) = event {
///             let text = format!("{}: {} of {}", near.policy.name(), near.spent, near.limit);
///             self.0.lock().unwrap().push(text);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let warnings = Arc::new(Warnings::default());
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&warnings));
/// let daily = Policy::per_day("daily", 10)?;
/// for _ in 0..10 {
///     let _ = limiter.check("alice", &daily, 1).await?;
/// }
/// assert_eq!(*warnings.0.lock().unwrap(), ["daily: 8 of 10"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NearLimit<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// Units that the key has spent, with the request that came near the limit. Under a policy with
    /// [shards](Policy::with_shards), those of one shard.
    pub spent: u32,
    /// The most units that can be spent at once: the policy's [capacity](Policy::capacity).
    pub limit: u32,
    pub(super) key: ObservedKey<'a>,
}

impl NearLimit<'_> {
    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}
