//! Giving blocks and ends of holds to the store before the process ends; giving blocks back before a reset.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{block::Ended, settle::settle};
use crate::{
    key::Key,
    limiter::{core::Core, handle::Limiter},
    policy::Policy,
    runtime::deadline::within,
};

/// The longest time that [`Limiter::close`] waits for a store that does not answer, in its deadlines: a block that is
/// on its way is received and then released.
const LONGEST_CLOSE: u32 = 3;

impl Limiter {
    /// Gives back the units of all [leases](Policy::with_lease), and waits until the ends of all
    /// [holds](crate::limiter::Hold) have reached the store. Call it before the process ends, after the server has
    /// finished its requests: otherwise what the last of them have held stays taken until its time-to-live has passed.
    /// Later checks go to the store.
    ///
    /// Waits until the store has answered: at most three times its deadline for leases, and then at most 5 s for the
    /// ends of holds. It gives up as soon as the store has answered none of them for three deadlines. Blocks that are
    /// not given back, because the store is away or the process is killed, are charged in full after two seconds, or
    /// when the time-to-live of their policy's [holds](Policy::with_holds) has passed if that is shorter. Other holds
    /// end as their policies say. Clones of the limiter share its leases and holds. Returns at once without leases and
    /// holds. Holds whose handles still exist stay open.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, blocks and holds are given back in the background, as long as the runtime runs.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let per_tenant = Policy::per_second("per-tenant", 1_000_000)?.with_lease(10_000);
    /// for _ in 0..1_000 {
    ///     assert!(limiter.check("tenant:3", &per_tenant, 1).await?.is_allowed());
    /// }
    /// limiter.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        let core = &self.core;
        let ended = core.leases.close(Instant::now()).into_ended();
        drop(settle(core, ended));
        let time: Duration = core.calls.store.deadline() * LONGEST_CLOSE;
        if within(time, core.leases.quiet()).await.is_some() {
            core.holds.ends_answered(time).await;
        }
    }
}

/// Releases the blocks of a key, whose count is about to be reset.
pub(in crate::limiter) async fn release(core: &Arc<Core>, key: &Key, policy: &Policy) {
    end_blocks(core, key, policy, |ended| Ended { spent: 0, ..ended }).await;
}

/// Settles the blocks of a key, which is about to be banned.
pub(in crate::limiter) async fn give_back(core: &Arc<Core>, key: &Key, policy: &Policy) {
    end_blocks(core, key, policy, |ended| ended).await;
}

async fn end_blocks(core: &Arc<Core>, key: &Key, policy: &Policy, change: fn(Ended) -> Ended) {
    let ended = core.leases.forget(key, policy, Instant::now()).into_ended();
    for settlement in settle(core, ended.into_iter().map(change).collect()) {
        // If the store does not answer, the call that follows reports it.
        let _ = within(core.calls.store.deadline(), settlement).await;
    }
}
