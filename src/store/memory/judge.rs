//! The judgement of a check: all of its counts are evaluated, then committed together.

use std::{iter, slice, sync::MutexGuard};

use smallvec::SmallVec;

use crate::store::ban::{self, PolicyCost};
use crate::store::memory::counted::{Counted, Room};
use crate::store::memory::shard::{Shard, Victim, lock};
use crate::store::memory::table::{Place, Table, WhenFull};
use crate::verdict::{Outcome, Outcomes, Source, Verdict};
use crate::{algorithm::Admission, check::Charge, clock::Clock, key::Key};

/// The shard number of the shared buckets, which are locked last.
const SHARED: usize = usize::MAX;

/// How a check is judged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Judging {
    /// Commits the check if it fits.
    Check,
    /// Commits nothing.
    Peek,
    /// Commits as much of the only charge as fits.
    UpTo,
}

type Guards<'a> = SmallVec<[MutexGuard<'a, Shard>; 1]>;

/// The clock's time in microseconds, at most 2^53 (the year 2255), so that sums of times do not overflow.
pub(super) fn now_us(clock: &dyn Clock) -> u64 {
    clock.now_us().min(1 << 53)
}

impl Table {
    /// Judges a plain check of one charge without a ban, under one lock.
    #[inline]
    pub(super) fn judge_one(&self, charge: &Charge, may_share: bool, clock: &dyn Clock) -> Verdict {
        let place = self.place(&charge.key, &charge.policy);
        let mut shard = lock(&self.shards[place.shard]);
        let now = now_us(clock);
        match shard.find(&charge.key, &charge.policy, place.hash) {
            Some(index) => shard.entries.state_mut(index).judge(charge, now),
            None => self.judge_first(charge, place.hash, may_share, shard, now, clock),
        }
    }

    /// Judges a plain check of one charge whose key has no count yet.
    fn judge_first(
        &self,
        charge: &Charge,
        hash: u64,
        may_share: bool,
        mut shard: MutexGuard<'_, Shard>,
        now: u64,
        clock: &dyn Clock,
    ) -> Verdict {
        if !self.evicts() && !self.has_place(&mut shard, now) {
            drop(shard);
            return self.judge(slice::from_ref(charge), may_share, clock);
        }
        let verdict = shard.judge_new(charge, hash, now);
        let victims = shard.make_room(now, self.evicts());
        drop(shard);
        if !victims.is_empty() {
            self.fullness.report(victims);
        }
        verdict
    }

    /// Judges a check. Counts without a place of their own use the buckets that new keys share, if the check
    /// `may_share` and the store is set to [`WhenFull::ShareOneKey`].
    pub(super) fn judge(&self, charges: &[Charge], may_share: bool, clock: &dyn Clock) -> Verdict {
        self.judge_as(Judging::Check, charges, may_share, clock).0
    }

    /// Judges a check in a way. Also returns the cost of the first charge: the units that fit, or 0, with
    /// [`Judging::UpTo`].
    pub(super) fn judge_as(
        &self,
        judging: Judging,
        charges: &[Charge],
        may_share: bool,
        clock: &dyn Clock,
    ) -> (Verdict, u64) {
        let mut counts: SmallVec<[Counted<'_>; 2]> = charges.iter().flat_map(|charge| self.counts(charge)).collect();
        // All checks take locks in the same order, so that they cannot deadlock.
        let mut order: SmallVec<[usize; 1]> = counts.iter().map(|counted| counted.place.shard).collect();
        order.sort_unstable();
        order.dedup();
        let mut guards: Guards<'_> = order.iter().map(|&shard| lock(&self.shards[shard])).collect();
        // Read under the locks, so that no earlier judgement used a later time.
        let now = now_us(clock);

        if !self.evicts() && self.find_places(&mut counts, &order, &mut guards, now) {
            let mut shared = lock(&self.fullness.shared);
            self.share(&mut counts, &mut shared, now, may_share);
            order.push(SHARED);
            guards.push(shared);
        }
        let units = match judging {
            Judging::UpTo => Self::fit_cost(&mut counts, &order, &mut guards, now),
            Judging::Check | Judging::Peek => 0,
        };
        let (mut meets_ban, mut has_alternatives) = (false, false);
        for counted in &mut counts {
            guards[position(&order, counted)].evaluate(counted, now);
            has_alternatives |= counted.has_alternative;
            // A ban under a shadow policy, and one that does not deny the charge, change nothing for other charges.
            meets_ban |= counted.is_banned && counted.charged.is_denied_by_ban && !counted.charged.policy.is_shadow();
        }
        let allowed = match has_alternatives {
            true => choose(&mut counts),
            false => counts.iter().all(|counted| counted.fits || counted.charged.policy.is_shadow()),
        };
        let mut outcomes: SmallVec<[Outcome; 1]> = SmallVec::new();
        for number in 0..counts.len() {
            let (before, rest) = counts.split_at_mut(number);
            let Some((counted, after)) = rest.split_first_mut() else { break };
            let shard = &mut guards[position(&order, counted)];
            match (outcomes.last_mut(), before.last()) {
                (Some(outcome), Some(own)) if counted.charged.policy.is_ban() => {
                    // `own.fits` is the result of the evaluation, from before this rejection was counted.
                    let denied = judging != Judging::Peek
                        && !own.fits
                        && !own.is_banned
                        && !meets_ban
                        && own.has_own_place()
                        && counted.has_own_place()
                        && !counted.is_left_out;
                    *outcome = ban::merge(*outcome, shard.commit_denial(counted, now, denied));
                }
                _ => {
                    let banned = after.first().is_some_and(|next| next.charged.policy.is_ban() && !next.fits);
                    // `counted.fits` is true if the check is allowed, except under a shadow policy. While a ban by hand
                    // denies a charge, no policy counts the check as rejected.
                    let admission = match allowed && counted.fits {
                        _ if banned || counted.is_left_out || judging == Judging::Peek => Admission::Banned,
                        false if meets_ban => Admission::Banned,
                        is_admitted => Admission::of(is_admitted),
                    };
                    outcomes.push(shard.commit(counted, now, admission));
                    if let Room::Shared { .. } = counted.room {
                        let policy = counted.charged.policy;
                        self.fullness.shared_until(shard.idle_at_of(counted.key, policy, counted.place.hash));
                    }
                }
            }
        }
        // After all commits, because making room moves entries, and commits find them by index.
        let victims: SmallVec<[Victim; 1]> =
            guards.iter_mut().flat_map(|shard| shard.make_room(now, self.evicts())).collect();
        drop(guards);
        if !victims.is_empty() {
            self.fullness.report(victims);
        } else if counts.iter().any(|counted| !counted.charged.policy.is_ban() && !counted.has_own_place()) {
            self.fullness.warn();
        }
        (Verdict { allowed, source: Source::Store, time_us: now, outcomes: Outcomes(outcomes) }, units)
    }

    /// Lowers the cost of the only charge to the units that fit. Returns them; if there are none, the cost is 1.
    fn fit_cost(counts: &mut [Counted<'_>], order: &[usize], guards: &mut Guards<'_>, now: u64) -> u64 {
        let Some((own, denials)) = counts.split_first_mut() else { return 0 };
        let is_banned = denials.iter_mut().any(|denials| {
            guards[position(order, denials)].evaluate(denials, now);
            !denials.fits
        });
        let room = if is_banned { 0 } else { guards[position(order, own)].room_of(own, now) };
        let units = room.min(own.charged.cost);
        own.charged.cost = units.max(1);
        units
    }

    /// Whether a new key gets its own place and cannot have charged a shared bucket.
    fn has_place(&self, shard: &mut Shard, now: u64) -> bool {
        !self.fullness.is_shared(now) && (shard.has_room() || shard.find_room(now).is_ok())
    }

    /// Finds places for new counts. Returns whether the shared buckets are needed, either for counts without a place or
    /// because a key with a place may have charged them.
    ///
    /// Charges come first, because the check needs their places to pass. Counts of denials get what is left. A peek
    /// takes no place, and only finds out whether there is one.
    fn find_places(&self, counts: &mut [Counted<'_>], order: &[usize], guards: &mut Guards<'_>, now: u64) -> bool {
        let mut needs_shared = false;
        for charges in [true, false] {
            for counted in counts.iter_mut().filter(|counted| counted.is_charge() == charges) {
                let shard = &mut guards[position(order, counted)];
                if shard.find(counted.key, counted.charged.policy, counted.place.hash).is_some() {
                    continue;
                }
                let found = if shard.has_room() { Ok(()) } else { shard.find_room(now) };
                counted.room = match found {
                    Ok(()) => Room::Free { start: None },
                    Err(until) => Room::Nowhere { wait_us: until.map(|until| until - now) },
                };
                if counted.charged.cost > 0 && (charges || found.is_ok()) {
                    // Also counted without a place, so that the next charge of the check waits for one place more.
                    shard.promise();
                }
                needs_shared |= !counted.charged.policy.is_ban() && (found.is_err() || self.fullness.is_shared(now));
            }
        }
        needs_shared && self.fullness.when_full() == WhenFull::ShareOneKey
    }

    /// Starts new counts with what their keys may have spent in the shared buckets. If the check `may_share`, counts
    /// without a place move to the shared buckets.
    fn share<'a>(&'a self, counts: &mut [Counted<'a>], shared: &mut Shard, now: u64, may_share: bool) {
        let key = &self.fullness.shared_key;
        for number in 0..counts.len() {
            let (before, rest) = counts.split_at_mut(number);
            let Some(counted) = rest.first_mut().filter(|counted| !counted.charged.policy.is_ban()) else { continue };
            let policy = counted.charged.policy;
            let bucket = shared.find(key, policy, policy.name_hash());
            match &mut counted.room {
                Room::Free { start } => *start = bucket.map(|index| Box::new(shared.entries.state(index).clone())),
                Room::Nowhere { .. } if may_share => {
                    let same =
                        |other: &&Counted<'_>| other.place.shard == SHARED && other.charged.policy.counts_with(policy);
                    let others = before.iter().filter(same);
                    // A charge that costs nothing or never fits writes nothing, and needs no bucket.
                    let writes = |charged: &PolicyCost<'_>| (1..=charged.policy.capacity()).contains(&charged.cost);
                    if bucket.is_none() && !others.clone().any(|other| writes(&other.charged)) {
                        if !shared.has_room() && shared.find_room(now).is_err() {
                            continue;
                        }
                        if writes(&counted.charged) {
                            shared.promise();
                        }
                    }
                    let ahead = others.fold(0_u64, |sum, other| sum.saturating_add(other.charged.cost));
                    counted.room = Room::Shared { ahead };
                    counted.place = Place { shard: SHARED, hash: policy.name_hash() };
                    counted.key = key;
                }
                Room::Own | Room::Shared { .. } | Room::Nowhere { .. } => {}
            }
        }
    }

    /// The counts of a charge: its own, and the count of its denials if they lead to a ban.
    fn counts<'a>(&self, charge: &'a Charge) -> impl Iterator<Item = Counted<'a>> + use<'a, '_> {
        iter::once(ban::own_cost(charge)).chain(ban::denial(charge)).map(|charged| Counted {
            hold: charge.hold.filter(|_| !charged.policy.is_ban()),
            has_alternative: charge.has_alternative(),
            ..self.counted(&charge.key, charged)
        })
    }

    /// A count that is not evaluated yet, of a cost without a hold and without an alternative.
    pub(super) fn counted<'a>(&self, key: &'a Key, charged: PolicyCost<'a>) -> Counted<'a> {
        let place = self.place(key, charged.policy);
        Counted {
            key,
            charged,
            hold: None,
            place,
            room: Room::Own,
            index: None,
            fits: false,
            is_banned: false,
            has_alternative: false,
            is_left_out: false,
        }
    }
}

/// Chooses between alternatives: the first whose counts have room is charged, and the others are left out. Returns
/// whether the check is allowed.
fn choose(counts: &mut [Counted<'_>]) -> bool {
    let mut allowed = true;
    // A charge and the count of its denials belong together.
    for group in counts.chunk_by_mut(|counted, next| counted.has_alternative || next.charged.policy.is_ban()) {
        let is_shadow = group[0].charged.policy.is_shadow();
        let mut charges: SmallVec<[&mut [Counted<'_>]; 2]> =
            group.chunk_by_mut(|_, next| next.charged.policy.is_ban()).collect();
        let fits = |charge: &&mut [Counted<'_>]| charge.iter().all(|counted| counted.fits);
        let Some(chosen) = charges.iter().position(fits) else {
            allowed &= is_shadow;
            continue;
        };
        let others = charges.iter_mut().enumerate().filter(|(number, _)| *number != chosen);
        others.flat_map(|(_, charge)| charge.iter_mut()).for_each(|counted| counted.is_left_out = true);
    }
    allowed
}

/// The position of a count's shard among the locked ones.
fn position(order: &[usize], counted: &Counted<'_>) -> usize {
    order.partition_point(|&other| other < counted.place.shard)
}
