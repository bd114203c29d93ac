//! All leases of a limiter.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{collections::HashMap, hash::BuildHasher, time::Duration};

use smallvec::SmallVec;
use tokio::{sync::Notify, time::Instant};

use super::blocks::{FinishedBlock, policy_of_blocks};
use super::demand::{Demand, HOT};
use super::state::{Asked, Lease, Remains, Spent, Step};
use super::waiter::{Delivery, LastOutcome};
use super::{meter::Demanded, size::usual_horizon};
use crate::check::{Charge, open_hold::OpenHold};
use crate::observe::{LeaseSpan, Observer, with_reports_after};
use crate::{error::Error, key::Key, policy::Policy, runtime::random::FastState, verdict::Verdict};

/// The leases of a limiter. Clones of the limiter share them.
pub(in crate::limiter) struct Leases {
    shards: Box<[Mutex<Shard>]>,
    hasher: FastState,
    /// Made at the first check under a policy with a lease.
    demand: OnceLock<Demand>,
    /// The number of leases.
    count: AtomicUsize,
    last_number: AtomicU64,
    is_closed: AtomicBool,
    start: Instant,
    /// When leases of keepers that do not run were looked for, in milliseconds after `start`.
    swept_ms: AtomicU64,
    /// The requests and settlements on their way.
    busy: AtomicUsize,
    /// Notified when nothing is on its way any more.
    quiet: Notify,
}

/// Leases by the hash of their key and the name of their policy. Policies of one name may each have a lease of a key.
type Shard = HashMap<u64, SmallVec<[Box<Lease>; 1]>, FastState>;

/// A lease, as its keeper knows it.
#[derive(Debug)]
pub(super) struct LeaseId {
    pub(super) key: Key,
    pub(super) policy: Policy,
    /// The policy under which the blocks are held.
    pub(super) block_policy: Policy,
    number: u64,
}

const SHARDS: usize = 64;
/// The most leases. One takes about 3.5 KB with its block, so all take 60 MB. Further keys are checked in the store.
const MOST: usize = 16_384;
const SWEEP_INTERVAL_MS: u64 = 100;

impl Default for Leases {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: FastState::default(),
            demand: OnceLock::new(),
            count: AtomicUsize::new(0),
            last_number: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            start: Instant::now(),
            swept_ms: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            quiet: Notify::new(),
        }
    }
}

impl Leases {
    /// Spends the units of a charge, if its key has a lease. Otherwise counts the check. `on_spent` is called if units
    /// are spent now, before another check can find their block used up. Observers hear of what it does after the lock.
    #[inline]
    pub(super) fn spend(&self, charge: &Charge, may_wait: bool, now: Instant, on_spent: impl FnOnce()) -> Spent {
        let hash = self.hash(&charge.key, &charge.policy);
        let spent = with_reports_after(|| {
            let mut shard = self.shard(hash);
            let lease = find(&mut shard, hash, &charge.key, &charge.policy)?;
            let spent = lease.spend(charge.cost, may_wait, now);
            if matches!(spent, Spent::Now(_)) {
                on_spent();
            }
            Some(spent)
        });
        spent.unwrap_or_else(|| {
            let demand = self.demand.get_or_init(|| Demand::new(now));
            if demand.count(hash, usual_horizon(&charge.policy), now) { Spent::Not } else { Spent::Cold }
        })
    }

    /// Remembers what the store said about a charge, and how long it `took` if it was asked. Returns a new lease if the
    /// key is hot: a keeper has to be started for it. `may_start` is the store's deadline if a keeper can run here.
    pub(super) fn record(
        &self,
        charge: &Charge,
        standing: LastOutcome,
        took: Option<Duration>,
        may_start: Option<Duration>,
        now: Instant,
    ) -> Option<(LeaseId, Arc<Notify>)> {
        let Charge { key, policy, .. } = charge;
        let hash = self.hash(key, policy);
        let mut shard = self.shard(hash);
        if let Some(lease) = find(&mut shard, hash, key, policy) {
            lease.record(standing, took);
            return None;
        }
        let is_hot = self.demand.get().is_some_and(|demand| demand.is_hot(hash, usual_horizon(policy), now));
        let deadline = may_start.filter(|_| is_hot && !self.is_closed.load(Ordering::Acquire))?;
        if self.count.fetch_add(1, Ordering::AcqRel) >= MOST {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let asked = Demanded { units: charge.cost.saturating_mul(HOT), checks: HOT };
        let mut lease = Lease::new(key.clone(), policy.clone(), number, standing, asked, deadline, now);
        lease.record(standing, took);
        let wake = lease.wake();
        shard.entry(hash).or_default().push(Box::new(lease));
        let (key, policy, block_policy) = (key.clone(), policy.clone(), policy_of_blocks(policy));
        Some((LeaseId { key, policy, block_policy, number }, wake))
    }

    /// Reports a new lease to the observer, and its end later.
    pub(super) fn watch(&self, id: &LeaseId, observer: &Arc<dyn Observer>) {
        let span = LeaseSpan::start(observer, &id.key, &id.policy);
        let hash = self.hash(&id.key, &id.policy);
        // If the lease has ended meanwhile, its end is reported here, without the lock.
        if let Some(lease) = lease_of(&mut self.shard(hash), hash, id) {
            lease.span = Some(span);
        }
    }

    /// What this process can still spend of a count.
    pub(super) fn left(&self, key: &Key, policy: &Policy, now: Instant) -> u64 {
        self.map_count(key, policy, |lease| lease.left(now)).fold(0, u64::saturating_add)
    }

    /// Ends the blocks of a count, to give back what they have left.
    pub(super) fn give_back(&self, key: &Key, policy: &Policy, now: Instant) -> Vec<FinishedBlock> {
        self.map_count(key, policy, |lease| lease.give_back(now)).flatten().collect()
    }

    /// Ends the lease of a key, because its keeper does not run: its runtime stands still.
    pub(super) fn give_up(&self, key: &Key, policy: &Policy, now: Instant) -> Remains {
        self.end_of_count(key, policy, now, |lease| lease.policy == *policy)
    }

    /// What the keeper does next. `None` if the lease has ended.
    pub(super) fn step(&self, id: &LeaseId, now: Instant) -> Option<Step> {
        let hash = self.hash(&id.key, &id.policy);
        // Dropped after the lock, because observers hear of it.
        let _over;
        let mut shard = self.shard(hash);
        let step = lease_of(&mut shard, hash, id)?.step(now);
        if matches!(&step, Step::Actions(act) if act.is_over) {
            _over = self.remove(&mut shard, hash, id.number);
        }
        Some(step)
    }

    /// Notes which block is requested for the lease. `false` if the lease has ended.
    pub(super) fn request(&self, id: &LeaseId, hold: &OpenHold, units: u64) -> bool {
        let hash = self.hash(&id.key, &id.policy);
        let mut shard = self.shard(hash);
        let lease = lease_of(&mut shard, hash, id);
        lease.map(|lease| lease.request(hold.clone(), units)).is_some()
    }

    /// Hands the answer to a request to the lease. If the lease has ended, the block is returned: it was released then,
    /// but the store may have made it later.
    pub(super) fn receive(
        &self,
        id: &LeaseId,
        asked: Asked,
        result: Result<Verdict, Error>,
        now: Instant,
    ) -> Result<Vec<Delivery>, FinishedBlock> {
        let hash = self.hash(&id.key, &id.policy);
        match lease_of(&mut self.shard(hash), hash, id) {
            Some(lease) => Ok(lease.receive(asked, result, now)),
            None => Err(FinishedBlock::uncertain(asked.hold, asked.units)),
        }
    }

    /// Notes that the lease gets no block, because the store may be behind. Returns what the waiters get.
    pub(super) fn decline(&self, id: &LeaseId, now: Instant) -> Vec<Delivery> {
        let hash = self.hash(&id.key, &id.policy);
        lease_of(&mut self.shard(hash), hash, id).map(|lease| lease.decline(now)).unwrap_or_default()
    }

    /// Ends a lease whose keeper has ended. `None` if the lease had ended before.
    pub(super) fn abandon(&self, id: &LeaseId, now: Instant) -> Option<Remains> {
        let hash = self.hash(&id.key, &id.policy);
        let mut remains = Remains::default();
        let lease = self.remove(&mut self.shard(hash), hash, id.number)?;
        lease.close(now, &mut remains);
        Some(remains)
    }

    /// Ends the leases that their keepers should have ended: the runtimes of these keepers stand still. Looks for them
    /// now and then.
    pub(super) fn sweep(&self, now: Instant) -> Remains {
        let now_ms = u64::try_from(now.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        let swept_ms = self.swept_ms.load(Ordering::Relaxed);
        let is_due = self.count.load(Ordering::Acquire) > 0 && now_ms >= swept_ms.saturating_add(SWEEP_INTERVAL_MS);
        let exchanged = || self.swept_ms.compare_exchange(swept_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed);
        if !is_due || exchanged().is_err() {
            return Remains::default();
        }
        self.end_all(now, |lease| lease.is_left(now))
    }

    /// Ends the leases of a key under policies that share their counts with `policy`.
    pub(super) fn forget(&self, key: &Key, policy: &Policy, now: Instant) -> Remains {
        self.end_of_count(key, policy, now, |_| true)
    }

    /// Ends all leases. Later checks start none.
    pub(super) fn close(&self, now: Instant) -> Remains {
        self.is_closed.store(true, Ordering::Release);
        self.end_all(now, |_| true)
    }

    fn end_all(&self, now: Instant, ends: impl Fn(&Lease) -> bool) -> Remains {
        let mut remains = Remains::default();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let leases = shard.iter().flat_map(|(hash, leases)| leases.iter().map(|lease| (*hash, lease)));
            let ending = leases.filter(|(_, lease)| ends(lease)).map(|(hash, lease)| (hash, lease.number)).collect();
            self.end(&mut shard, ending, now, &mut remains);
        }
        remains
    }

    /// Ends those of a key's leases under policies that share their counts with `policy`.
    fn end_of_count(&self, key: &Key, policy: &Policy, now: Instant, ends: impl Fn(&Lease) -> bool) -> Remains {
        let hash = self.hash(key, policy);
        let mut shard = self.shard(hash);
        let leases = shard.get(&hash).into_iter().flatten();
        let of_count = leases.filter(|lease| lease.key == *key && lease.policy.counts_with(policy) && ends(lease));
        let ending = of_count.map(|lease| (hash, lease.number)).collect();
        let mut remains = Remains::default();
        self.end(&mut shard, ending, now, &mut remains);
        remains
    }

    /// Ends leases by their hashes and numbers.
    fn end(&self, shard: &mut Shard, ending: Vec<(u64, u64)>, now: Instant, remains: &mut Remains) {
        for (hash, number) in ending {
            if let Some(lease) = self.remove(shard, hash, number) {
                lease.close(now, remains);
            }
        }
    }

    /// Marks a request or a settlement as on its way, until the result is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(Arc::clone(self))
    }

    /// Waits until no request and no settlement is on its way.
    pub(super) async fn quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.busy.load(Ordering::Acquire) == 0 {
                return;
            }
            quiet.await;
        }
    }

    fn remove(&self, shard: &mut Shard, hash: u64, number: u64) -> Option<Box<Lease>> {
        let leases = shard.get_mut(&hash)?;
        let place = leases.iter().position(|lease| lease.number == number)?;
        let lease = leases.swap_remove(place);
        if leases.is_empty() {
            shard.remove(&hash);
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(lease)
    }

    /// Whether the store answers too slowly for a call that first waits for the settlements of a count.
    pub(in crate::limiter) fn is_slow(&self, key: &Key, policy: &Policy) -> bool {
        self.map_count(key, policy, |lease| lease.is_slow()).any(|is_slow| is_slow)
    }

    /// Acts on the leases of a count: those of the key under policies that share the count.
    fn map_count<T>(
        &self,
        key: &Key,
        policy: &Policy,
        mut act: impl FnMut(&mut Lease) -> T,
    ) -> impl Iterator<Item = T> {
        let hash = self.hash(key, policy);
        let mut shard = self.shard(hash);
        let leases = shard.get_mut(&hash).into_iter().flatten();
        let of_count = leases.filter(|lease| lease.key == *key && lease.policy.counts_with(policy));
        of_count.map(|lease| act(lease)).collect::<SmallVec<[T; 1]>>().into_iter()
    }

    fn hash(&self, key: &Key, policy: &Policy) -> u64 {
        // The hash of the key has a random seed, so no client can choose keys that collide.
        self.hasher.hash_one(key) ^ policy.name_hash().rotate_left(32)
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::try_from((hash >> 20) % SHARDS as u64).unwrap_or(0)])
    }
}

/// A request or a settlement on its way.
pub(super) struct Busy(Arc<Leases>);

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.quiet.notify_waiters();
        }
    }
}

/// A lease belongs to a key and a whole policy: policies that share their counts may have different limits.
fn find<'a>(shard: &'a mut Shard, hash: u64, key: &Key, policy: &Policy) -> Option<&'a mut Lease> {
    let leases = shard.get_mut(&hash)?;
    leases.iter_mut().find(|lease| lease.key == *key && lease.policy == *policy).map(|lease| &mut **lease)
}

fn lease_of<'a>(shard: &'a mut Shard, hash: u64, id: &LeaseId) -> Option<&'a mut Lease> {
    shard.get_mut(&hash)?.iter_mut().find(|lease| lease.number == id.number).map(|lease| &mut **lease)
}

/// Locks a shard. A panic under the lock cannot leave a block with more units than it has, so poisoning is ignored.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::{hold, verdict::Outcome};

    /// A check that finds the block used up is judged by the local fallback during an outage. The fallback must know
    /// all units of the block by then.
    #[test]
    fn law_1_a_check_finds_a_block_used_up_only_after_all_of_its_units_were_counted() {
        let policy = Policy::per_minute("p", 100).unwrap().with_lease(10);
        let charge = Charge::new(Key::from("k"), policy.clone(), 1);
        let (leases, now) = (Leases::default(), Instant::now());
        let outcome = Outcome { fits: true, available: 50, retry_after_us: None, next_us: 1, reset_us: 1, ban_us: 0 };
        let is_hot = |_: &u64| matches!(leases.spend(&charge, false, now, || panic!("there is no block")), Spent::Not);
        assert_eq!((1..).find(is_hot), Some(HOT));
        let learned = LastOutcome::new(outcome, 1, now);
        let deadline = Duration::from_millis(50);
        let (id, _) = leases.record(&charge, learned, None, Some(deadline), now).unwrap();
        let block = OpenHold::new(charge.key.clone(), id.block_policy.clone(), hold::random_id());
        let asked = Asked { hold: block, units: 1, sent: now };
        drop(leases.receive(&id, asked, Ok(Verdict::of_one(outcome, &policy, 1)), now));

        let (is_spent, spent) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let last = leases.spend(&charge, false, now, || {
                    is_spent.send("spent").unwrap();
                    // Time for the other check, which must wait.
                    thread::sleep(Duration::from_millis(50));
                    is_spent.send("counted").unwrap();
                });
                assert!(matches!(last, Spent::Now(_)));
            });
            assert_eq!(spent.recv().unwrap(), "spent");
            let next = leases.spend(&charge, false, now, || panic!("the block had one unit"));
            assert!(matches!(next, Spent::Not));
            assert_eq!(spent.try_recv(), Ok("counted"));
        });
    }
}
