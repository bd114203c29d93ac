//! Leases: one hot key at the speed of memory.
//!
//! A check under a policy with a lease is spent from a block of units, if its key has one. Otherwise it goes to the
//! store as any check, and if its key is checked often, a lease is started: a keeper requests blocks as holds, each
//! before the last one is used up, and settles what was spent. Checks that come meanwhile wait for the block. Every
//! denial is the store's.

mod blocks;
mod demand;
mod meter;
mod size;
mod state;
mod store;
pub(super) mod table;
mod waiter;

use std::task::{Context, Poll, Waker};
use std::{future::Future, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle, time::Instant};

use self::{blocks::FinishedBlock, state::Spent, waiter::Reply};
use crate::calls::{Calls, Purpose};
use crate::check::{Check, open_hold::OpenHold};
use crate::limiter::{core::Core, hold::SettleFuture};
use crate::runtime::{deadline::within, stalls::Budget};
use crate::store::{Answer, Pending};
use crate::{error::Error, fallback::Reservation, hold::SettleAnswer, key::Key, policy::Policy, verdict::Verdict};

pub(super) use self::store::{add_left, judge, on_cold_verdict};

/// Judges a check under a policy with a lease. `may_wait`: whether the caller can wait for a block. `is_cold` becomes
/// true if the answer is pending and the store's alone: see [`on_cold_verdict`].
pub(super) fn ask(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    may_wait: bool,
    is_cold: &mut bool,
) -> Answer<Verdict> {
    let [charge] = check.charges() else { return judge(core, check, purpose) };
    if charge.cost == 0 || charge.hold.is_some() {
        return judge(core, check, purpose);
    }
    // A check that is held back goes on to the store, so that it can become a probe.
    let Ok(reserved) = core.calls.keep_to_share(check, check, purpose) else { return judge(core, check, purpose) };
    let mut counted = Ok(());
    let count = || counted = core.calls.on_spent(charge, purpose);
    match core.leases.spend(charge, may_wait, Instant::now(), count) {
        Spent::Now(verdict) => Answer::Ready(counted.map(|()| verdict)),
        Spent::Later(reply) => {
            let (core, check) = (Arc::clone(core), check.clone());
            Answer::Pending(Pending::new(wait(core, check, purpose, reserved, reply)))
        }
        // The check takes its room again if the store is asked.
        Spent::Not => {
            drop(reserved);
            judge(core, check, purpose)
        }
        Spent::Cold => {
            drop(reserved);
            store::judge_cold(core, check, purpose, is_cold)
        }
    }
}

/// Waits for a block, and asks the store if the block does not come or is too small. Room of the share is `reserved`
/// for the units meanwhile.
async fn wait(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
    reserved: Option<Box<Reservation>>,
    reply: oneshot::Receiver<Reply>,
) -> Result<Verdict, Error> {
    let deadline = core.calls.store.deadline();
    let budget = Budget::of(deadline);
    // The other half is for the store.
    match within(deadline / 2, reply).await {
        Some(Ok(Reply::Spent(verdict))) => {
            check.charges().iter().try_for_each(|charge| core.calls.on_spent(charge, purpose))?;
            return Ok(verdict);
        }
        Some(Ok(Reply::Failed(error))) => return Err(error),
        Some(Ok(Reply::Ask) | Err(_)) => {}
        None => {
            if let [charge] = check.charges() {
                let remains = core.leases.give_up(&charge.key, &charge.policy, Instant::now());
                drop(settle(&core, remains.into_ended()));
            }
        }
    }
    drop(reserved);
    let left = budget.left_after(budget.spent());
    store::judge_within(&core, &check, purpose, left).await
}

/// Settlements on their way.
type Given = Vec<JoinHandle<()>>;

/// Settles blocks: at once if the store answers at once, otherwise in the background.
///
/// A block is a hold, so a settlement without an answer is kept and sent again as that of any hold. A block that cannot
/// be settled is charged in full when it expires.
fn settle(core: &Arc<Core>, ended: Vec<FinishedBlock>) -> Given {
    let runtime = Handle::try_current().ok();
    let mut given = Given::new();
    for FinishedBlock { hold, units, spent, is_uncertain } in ended {
        let block = hold.clone();
        let settlement =
            SettleFuture::of_block(Arc::clone(&core.holds), runtime.clone(), hold, units, spent, is_uncertain);
        let mut settlement = Box::pin(settlement);
        // The first poll sends the settlement, so that it shares a call of the store with what is sent next.
        match (settlement.as_mut().poll(&mut Context::from_waker(Waker::noop())), &runtime) {
            (Poll::Ready(answer), _) => note(&core.calls, &block, is_uncertain, &answer),
            (Poll::Pending, Some(runtime)) => {
                let (busy, calls) = (core.leases.busy(), Arc::clone(&core.calls));
                given.push(runtime.spawn(async move {
                    let answer = settlement.await;
                    note(&calls, &block, is_uncertain, &answer);
                    drop(busy);
                }));
            }
            (Poll::Pending, None) => {}
        }
    }
    given
}

/// Settles blocks at once if the store answers at once, otherwise with the next use of the limiter: the runtime of
/// their keeper shuts down.
fn settle_later(core: &Arc<Core>, ended: Vec<FinishedBlock>) {
    for FinishedBlock { hold, units, spent, is_uncertain } in ended {
        // A settlement that is dropped before its first poll is sent in the background.
        drop(SettleFuture::of_block(Arc::clone(&core.holds), None, hold, units, spent, is_uncertain));
    }
}

/// Notes that the store does not hold a block any more. A hold of unknown fate may reach the store after its end.
fn note(calls: &Calls, block: &OpenHold, is_uncertain: bool, answer: &Result<SettleAnswer, Error>) {
    let is_over = match answer {
        Ok(SettleAnswer::Settled) => true,
        Ok(SettleAnswer::Expired | SettleAnswer::NotHeld) => !is_uncertain,
        Err(_) => false,
    };
    if is_over {
        calls.held.end(block);
    }
}

/// Settles the blocks of runtimes that stand still.
fn sweep(core: &Arc<Core>) {
    let ended = core.leases.sweep(Instant::now()).into_ended();
    if !ended.is_empty() {
        drop(settle(core, ended));
    }
}

/// The longest time that a close waits for blocks, and then for a store that does not answer, in its deadlines: a block
/// that is on its way is released, and once more when it has been received.
const LONGEST_CLOSE: u32 = 3;

/// Gives back all blocks, and waits until they and the ends of all holds have reached the store.
pub(in crate::limiter) async fn close(core: &Arc<Core>) {
    drop(settle(core, core.leases.close(Instant::now()).into_ended()));
    let time: Duration = core.calls.store.deadline().saturating_mul(LONGEST_CLOSE);
    // A keeper that stands still must not keep the ends of holds from their answers.
    let _ = within(time, core.leases.quiet()).await;
    core.holds.ends_answered(time).await;
}

/// Changes a count in a way that no block may outlast. Blocks are given back before it, with what was spent, and after
/// it, because checks may have taken blocks meanwhile.
pub(in crate::limiter) async fn change_without_blocks<T>(
    core: &Arc<Core>,
    key: &Key,
    policy: &Policy,
    change: impl Future<Output = T>,
) -> T {
    let deadline = core.calls.store.deadline();
    give_back(core, key, policy, deadline).await;
    let changed = change.await;
    give_back(core, key, policy, deadline).await;
    changed
}

/// Settles the blocks of a key before a call that needs all units of its count: a ban, a reset, or a charge of what
/// fits. Waits for at most `time`: if the store does not answer, the call that follows reports it. Returns whether
/// there was anything to wait for.
pub(in crate::limiter) async fn give_back(core: &Arc<Core>, key: &Key, policy: &Policy, time: Duration) -> bool {
    let given = settle(core, core.leases.forget(key, policy, Instant::now()).into_ended());
    let waits = !given.is_empty();
    settled(given, time).await;
    waits
}

/// Waits for all settlements, together for at most `time`. One that has no answer is sent again in the background.
async fn settled(given: Given, time: Duration) {
    let all = async {
        for settlement in given {
            // A settlement that has panicked has no answer either.
            let _ = settlement.await;
        }
    };
    let _ = within(time, all).await;
}

#[cfg(test)]
mod tests {
    use super::{meter::Demanded, state::Lease, waiter::LastOutcome, *};
    use crate::{MemoryStore, error::ErrorKind, hold, verdict::Outcome};

    const MS: Duration = Duration::from_millis(1);
    /// The largest block.
    const MOST: u64 = 1_000;
    const PLENTY: Outcome =
        Outcome { fits: true, available: 1_000_000, retry_after_us: None, next_us: 1, reset_us: 1, ban_us: 0 };

    /// The lease of a key whose checks asked for `asked` units in the last 33 ms, the time of a block.
    fn lease(asked: u64, now: Instant) -> Lease {
        let policy = Policy::per_second("p", 1_000_000).unwrap().with_lease(MOST);
        let standing = LastOutcome::new(Outcome { available: 400, ..PLENTY }, 1, now);
        let asked = Demanded { units: asked, checks: asked };
        Lease::new(Key::from("k"), policy, 0, standing, asked, 50 * MS, now)
    }

    /// The receiver of the reply to a check that waits for a block. `None` for another check.
    fn waits(lease: &mut Lease, cost: u64, now: Instant) -> Option<oneshot::Receiver<Reply>> {
        match lease.spend(cost, true, now) {
            Spent::Later(reply) => Some(reply),
            Spent::Now(_) | Spent::Not | Spent::Cold => None,
        }
    }

    /// What the keeper does: the units of the block to request, and the number of blocks to settle.
    fn step(lease: &mut Lease, now: Instant) -> (Option<u64>, usize) {
        match lease.step(now) {
            state::Step::Actions(actions) => (actions.ask, actions.ended.len()),
            state::Step::Sleep(_) => (None, 0),
        }
    }

    /// Receives a block. Returns the number of replies to checks that wait.
    fn receive(lease: &mut Lease, units: u64, now: Instant) -> usize {
        let hold = OpenHold::new(lease.key.clone(), lease.policy.clone(), hold::random_id());
        let made = Verdict::of_one(PLENTY, &lease.policy, 1);
        lease.receive(state::Asked { hold, units, sent: now }, Ok(made), now).len()
    }

    /// Then no check waits for a block, and few units are held.
    #[test]
    fn a_block_is_requested_when_half_of_the_last_one_is_left_and_settled_with_the_next_one_or_after_its_time() {
        let now = Instant::now();
        let mut lease = lease(100, now);
        let spend = |lease: &mut Lease, units: u64| {
            (0..units).for_each(|_| assert!(matches!(lease.spend(1, false, now), Spent::Now(_))));
        };
        let first = waits(&mut lease, 1, now);
        assert!(first.is_some());
        assert_eq!((step(&mut lease, now), receive(&mut lease, 32, now)), ((Some(32), 0), 1));
        spend(&mut lease, 14);
        assert_eq!(step(&mut lease, now), (None, 0), "17 of 32 units are left");
        spend(&mut lease, 1);
        let (Some(second), 0) = step(&mut lease, now) else { panic!("no block is requested") };
        spend(&mut lease, 16);
        receive(&mut lease, second, now);
        assert_eq!(step(&mut lease, now), (None, 0), "nothing of the second block is spent");
        spend(&mut lease, second.div_ceil(2));
        let (Some(third), 1) = step(&mut lease, now) else { panic!("the first is not settled") };
        receive(&mut lease, third, now);
        assert!(waits(&mut lease, MOST, now).is_none(), "two blocks are open");
        spend(&mut lease, second / 2);
        for (ms, settled) in [(0, 0), (30, 0), (34, 1)] {
            assert_eq!(step(&mut lease, now + ms * MS), (None, settled), "{ms} ms after the end of the second block");
        }
    }

    #[test]
    fn checks_wait_in_turn_for_blocks_that_can_serve_them() {
        let now = Instant::now();
        assert!(waits(&mut lease(0, now), 1, now).is_none(), "no block pays");
        let mut lease = lease(100, now);
        let first = waits(&mut lease, 1, now);
        assert_eq!(step(&mut lease, now), (Some(32), 0));
        assert!(waits(&mut lease, MOST + 1, now).is_none(), "no block is so large");
        let others = [MOST, 1].map(|cost| waits(&mut lease, cost, now));
        assert!(first.is_some() && others.iter().all(Option::is_some));
        assert_eq!(receive(&mut lease, 32, now), 1, "the others wait for the next block");
        let last = waits(&mut lease, 1, now);
        assert!(last.is_some(), "units are left, but others have come earlier");
        assert_eq!((step(&mut lease, now), receive(&mut lease, MOST, now)), ((Some(MOST), 0), 3));
        let large = waits(&mut lease, MOST, now);
        assert!(large.is_some() && step(&mut lease, now).0.is_some());
        assert_eq!(receive(&mut lease, 64, now), 1, "the block is too small, so the check asks the store");
    }

    /// A hold of unknown fate may reach the store after its end.
    #[test]
    fn checks_see_a_block_until_the_store_has_certainly_ended_it() {
        let plain = Policy::per_minute("p", 100).unwrap();
        let block = OpenHold::new(Key::from("k"), plain.clone().with_lease(10), hold::random_id());
        let (settled, expired) = (Ok(SettleAnswer::Settled), Ok(SettleAnswer::Expired));
        let error = Err(Error::new(ErrorKind::Unavailable, "down"));
        for (answer, is_uncertain, is_seen) in [
            (&settled, false, false),
            (&settled, true, false),
            (&expired, false, false),
            (&expired, true, true),
            (&error, false, true),
        ] {
            let calls = Calls::new(MemoryStore::new());
            assert!(calls.held.request(&block, Instant::now()));
            note(&calls, &block, is_uncertain, answer);
            let beside = calls.held.check_beside(&Check::new("k", &plain, 1));
            assert_eq!(beside.is_some(), is_seen, "{answer:?} {is_uncertain}");
        }
    }

    /// The answer to its request may take a whole deadline.
    #[tokio::test(start_paused = true)]
    async fn a_keeper_that_waits_for_an_answer_is_not_taken_to_stand_still() {
        let now = Instant::now();
        let mut lease = lease(100, now);
        let waiter = waits(&mut lease, 1, now);
        assert!(waiter.is_some() && step(&mut lease, now).0.is_some());
        tokio::time::advance(60 * MS).await;
        assert!(!lease.is_left(Instant::now()));
    }
}
