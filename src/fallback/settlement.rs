//! Settling debts: charging the store for them, batch by batch.
//!
//! A debit is the check that charges the store for one debt. A closure makes it, so that this module imports neither
//! the fallback nor the limiter.

use std::{collections::HashSet, future::Future, sync::Arc};

use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::fallback::{
    debts::Debts,
    domain_debts::{Debt, pause_of_kept},
};

/// The result of charging the store for one debt.
pub(crate) enum Settlement {
    /// The store has answered. `rest` units did not fit; they are charged later.
    Answered { rest: u32 },
    /// The store failed. `rest` units may be charged again: those that cannot have been charged.
    Failed { rest: u32 },
    /// The debt has left its window, so the store was not asked.
    NotSent,
}

impl Debts {
    /// Starts a task that charges the store for all debts, if a settlement is due and the caller runs in a tokio
    /// runtime. `charge` makes the closure that charges the store for one debt.
    pub(crate) fn settle_if_due<C, F>(self: &Arc<Self>, charge: impl FnOnce() -> C)
    where
        C: Fn(Debt) -> F + Send + 'static,
        F: Future<Output = Settlement> + Send + 'static,
    {
        if let Ok(runtime) = Handle::try_current()
            && self.start_settlement()
        {
            runtime.spawn(settle_all(Arc::clone(self), charge()));
        }
    }
}

/// Charges the store batch by batch, until no debt is due or the remaining domains pause after a failure. Debts that
/// are still in the table when the task ends are settled by another task. Debts in flight at that time have an unknown
/// fate and are not sent again.
///
/// Each domain starts with the debts of one key. If one of them fails, the domain pauses and the others go on: a domain
/// that is down costs one check a second. If the domain does not answer that check in time, its debt is lost.
async fn settle_all<C, F>(debts: Arc<Debts>, charge: C)
where
    C: Fn(Debt) -> F,
    F: Future<Output = Settlement> + Send + 'static,
{
    let mut answering = HashSet::new();
    loop {
        let mut debits = JoinSet::new();
        for debt in debts.take_batch(&answering) {
            let debit = charge(debt.clone());
            debits.spawn(async move { (debt, debit.await) });
        }
        if debits.is_empty() {
            return debts.end_settlement();
        }
        let mut failed = HashSet::new();
        for (debt, settlement) in debits.join_all().await {
            match settlement {
                Settlement::Answered { rest } => {
                    answering.insert(debt.domain);
                    debts.settled(&debt, rest, Some(Instant::now() + pause_of_kept(&debt.policy, debt.kept)));
                }
                Settlement::NotSent => debts.settled(&debt, 0, None),
                Settlement::Failed { rest } => {
                    failed.insert(debt.domain);
                    debts.settled(&debt, rest, None);
                }
            }
        }
        answering.retain(|domain| !failed.contains(domain));
        debts.pause(&failed);
    }
}
