//! Settling debts: charging the store for them, batch by batch.
//!
//! A debit is the check that charges the store for one debt. A closure makes it, so that this module imports neither
//! the fallback nor the limiter.

use std::{collections::HashSet, future::Future, sync::Arc};

use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::fallback::debts::Debts;
use crate::fallback::domain_debts::{Debt, pause_of_kept};

/// The result of charging the store for one debt.
pub(crate) enum Settlement {
    /// The store has answered. `rest` units did not fit; they are charged later.
    Answered { rest: u64 },
    /// The store failed. `rest` units may be charged again: those that cannot have been charged.
    Failed { rest: u64 },
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
            runtime.spawn(settle_all(Settling(Arc::clone(self)), charge()));
        }
    }
}

/// A settlement in progress. It ends when this is dropped, also with its runtime.
struct Settling(Arc<Debts>);

impl Drop for Settling {
    fn drop(&mut self) {
        self.0.end_settlement();
    }
}

/// One debt on its way to the store. What becomes of it is noted also if its runtime ends first.
struct Debit {
    debts: Arc<Debts>,
    debt: Debt,
    is_polled: bool,
    is_noted: bool,
}

impl Debit {
    fn of(debt: Debt, debts: &Arc<Debts>) -> Self {
        Self { debts: Arc::clone(debts), debt, is_polled: false, is_noted: false }
    }

    /// Notes the result as soon as it is there, because the task that waits for all debits may end with the runtime.
    async fn run(mut self, debit: impl Future<Output = Settlement>) -> (usize, Settlement) {
        self.is_polled = true;
        let settlement = debit.await;
        let (rest, due) = match settlement {
            Settlement::Answered { rest } => {
                (rest, Some(Instant::now() + pause_of_kept(&self.debt.policy, self.debt.kept)))
            }
            Settlement::NotSent => (0, None),
            Settlement::Failed { rest } => (rest, None),
        };
        self.is_noted = true;
        self.debts.settled(&self.debt, rest, due);
        (self.debt.domain, settlement)
    }
}

impl Drop for Debit {
    fn drop(&mut self) {
        if self.is_noted {
            return;
        }
        // A debit that was not polled has sent nothing. The fate of others is unknown, and they are not sent again.
        let rest = if self.is_polled {
            self.debts.unsure.note(&self.debt.key, &self.debt.policy);
            0
        } else {
            self.debt.cost
        };
        self.debts.settled(&self.debt, rest, None);
    }
}

/// Charges the store batch by batch, until no debt is due or the remaining domains pause after a failure. Debts that
/// are still in the table when the task ends are settled by another task. Debts in flight at that time have an unknown
/// fate and are not sent again.
///
/// Each domain starts with the debts of one key. If one of them fails, the domain pauses and the others go on: a domain
/// that is down costs one check a second. If the domain does not answer that check in time, its debt is lost.
async fn settle_all<C, F>(settlement: Settling, charge: C)
where
    C: Fn(Debt) -> F,
    F: Future<Output = Settlement> + Send + 'static,
{
    let Settling(debts) = &settlement;
    let mut answering = HashSet::new();
    loop {
        let mut debits = JoinSet::new();
        for debt in debts.take_batch(&answering) {
            let debit = charge(debt.clone());
            debits.spawn(Debit::of(debt, debts).run(debit));
        }
        if debits.is_empty() {
            return;
        }
        let mut failed = HashSet::new();
        for (domain, settlement) in debits.join_all().await {
            match settlement {
                Settlement::Answered { .. } => drop(answering.insert(domain)),
                Settlement::NotSent => {}
                Settlement::Failed { .. } => drop(failed.insert(domain)),
            }
        }
        answering.retain(|domain| !failed.contains(domain));
        debts.pause(&failed);
    }
}
