//! The keys and arguments of a call. `lua/check.lua` describes their format; `reply.rs` reads the reply.

use std::time::Duration;

use redis::Cmd;

use super::{
    hold_record::{self, holds_of},
    outgoing::{Request, Step},
    redis_key::RedisKeys,
};
use crate::{
    check::Charge,
    policy::{Algorithm, Holds, Policy, micros_up},
    store::{
        CountChange,
        ban::{self, PolicyCost},
    },
};

/// The numbers of the algorithms. `lua/check.lua` has the same numbers.
mod algorithm {
    pub(super) const SLIDING_WINDOW_LOG: u8 = 1;
    pub(super) const SLIDING_WINDOW_COUNTER: u8 = 2;
    pub(super) const FIXED_WINDOW: u8 = 3;
    pub(super) const TOKEN_BUCKET: u8 = 4;
    /// The open holds of the charge before.
    pub(super) const HOLDS: u8 = 8;
    /// Added to the number of an algorithm whose charge is followed by its holds.
    pub(super) const BESIDE_HOLDS: u8 = 8;
}

/// What the script does with a charge. `lua/check.lua` has the same numbers.
mod usage {
    /// Commits the charge if the check fits.
    pub(super) const COMMIT: u8 = 0;
    /// Flag: commits the charge also if the check is denied.
    pub(super) const COUNT_REJECTED: u8 = 1;
    /// Evaluates the charge and commits nothing, except as [`COUNT_REJECTED`] demands.
    #[cfg(feature = "cluster")]
    pub(super) const EVALUATE: u8 = 2;
    /// Refunds an earlier commit.
    #[cfg(feature = "cluster")]
    pub(super) const REFUND: u8 = 4;
    /// Counts the denials of the previous charge, which may lead to a ban.
    pub(super) const BAN: u8 = 8;
    /// Flag: the charge does not decide the check, and is committed only if it fits itself.
    pub(super) const SHADOW: u8 = 16;
    /// Charges units, whether or not they fit.
    pub(super) const RECORD: u8 = 32;
    /// Gives units back.
    pub(super) const CREDIT: u8 = 33;
    /// Bans the key by hand.
    pub(super) const BAN_BY_HAND: u8 = 34;
    /// Ends a ban by hand.
    pub(super) const UNBAN: u8 = 35;
    /// Forgets the count of denials, and reports whether it was full.
    pub(super) const FORGET_DENIALS: u8 = 36;
}

/// What a call uses. The script creates nothing else. `lua/check.lua` has the same flags.
mod uses {
    /// The flag of an algorithm.
    pub(super) const fn algorithm(number: u8) -> u8 {
        1 << (number - 1)
    }
    #[cfg(feature = "cluster")]
    pub(super) const REFUND: u8 = 16;
    pub(super) const SEVERAL_CHARGES: u8 = 32;
    pub(super) const BY_HAND: u8 = 64;
    pub(super) const HOLDS: u8 = 128;
}

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write<'a>(
    command: &mut Cmd,
    keys: &RedisKeys,
    now_us: Option<u64>,
    requests: impl Iterator<Item = &'a Request> + Clone,
) {
    command.arg(requests.clone().map(counts_of).sum::<usize>());
    let (mut runs, mut encoded) = (Runs::new(), Vec::new());
    for request in requests {
        runs.begin(counts_of(request));
        for (charge, key) in request.charges() {
            let holds = holds_of(charge, request.step);
            for count in counts(charge, request.step) {
                encoded.clear();
                keys.encode(&mut encoded, key, count.policy);
                command.arg(&encoded);
                runs.add(count, request.step, holds.is_some());
            }
            if let Some(holds) = holds {
                encoded.clear();
                keys.encode_holds(&mut encoded, key, &charge.policy);
                command.arg(&encoded);
                runs.add_holds(charge, holds, request.step);
            }
        }
        runs.end();
    }
    command.arg(&runs.packed);
    if let Some(now_us) = now_us {
        command.arg(now_us);
    }
}

/// The checks of a call, packed as runs of equal checks.
struct Runs {
    /// What the call uses, and the runs.
    packed: Vec<u8>,
    /// Where the last run starts.
    last: usize,
    /// Where the check that is added starts.
    check: usize,
    /// Whether that check has several charges.
    has_several: bool,
}

impl Runs {
    /// No checks.
    fn new() -> Self {
        Self { packed: vec![0], last: 1, check: 1, has_several: false }
    }

    /// Begins a check with this number of charges, as a run of its own.
    fn begin(&mut self, charges: usize) {
        let charges =
            u8::try_from(charges).expect("a check has at most Check::MAX_CHARGES charges, of two counts each");
        self.has_several = charges > 1;
        if self.has_several {
            self.uses(uses::SEVERAL_CHARGES);
        }
        self.check = self.packed.len();
        self.packed.extend_from_slice(&1_u16.to_le_bytes());
        self.packed.push(charges);
    }

    /// Adds a charge to the check. Its holds follow if it is beside holds.
    fn add(&mut self, PolicyCost { policy, cost }: PolicyCost<'_>, step: Step, is_beside_holds: bool) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (algorithm::SLIDING_WINDOW_LOG, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (algorithm::SLIDING_WINDOW_COUNTER, 0),
            Algorithm::FixedWindow => (algorithm::FIXED_WINDOW, 0),
            Algorithm::TokenBucket => (algorithm::TOKEN_BUCKET, policy.capacity().into()),
        };
        self.uses(uses::algorithm(algorithm));
        // A lone charge is committed exactly if it fits, under a shadow policy too, so it needs no flag.
        let shadow = if policy.is_shadow() && self.has_several { shadow_flag(step) } else { 0 };
        let beside = if is_beside_holds { algorithm::BESIDE_HOLDS } else { 0 };
        self.packed.extend_from_slice(&[algorithm + beside, usage_of(policy, step) | shadow]);
        self.packed.extend_from_slice(&policy.limit().to_le_bytes());
        self.packed.extend_from_slice(&double(policy.window_us()));
        self.packed.extend_from_slice(&double(parameter));
        let units = match step {
            Step::ByHand(CountChange::Record(units) | CountChange::Credit(units)) => units,
            _ => cost,
        };
        self.packed.extend_from_slice(&units.to_le_bytes());
        self.add_extra(step);
    }

    /// Adds the holds of the charge that was added last.
    fn add_holds(&mut self, charge: &Charge, holds: &Holds, step: Step) {
        self.uses(uses::HOLDS);
        let (usage, unsettled, ttl_us, id, actual) = hold_record::record(charge, holds, step);
        self.packed.extend_from_slice(&[algorithm::HOLDS, usage]);
        self.packed.extend_from_slice(&unsettled.to_le_bytes());
        self.packed.extend_from_slice(&double(ttl_us));
        self.packed.extend_from_slice(&id);
        self.packed.extend_from_slice(&actual.to_le_bytes());
        self.add_extra(step);
    }

    /// Adds the time of the commit that a refund undoes, or the duration of a ban by hand.
    fn add_extra(&mut self, step: Step) {
        match step {
            Step::ByHand(change) => {
                self.uses(uses::BY_HAND);
                let duration = if let CountChange::Ban(duration) = change { duration } else { Duration::ZERO };
                self.packed.extend_from_slice(&double(micros_up(duration)));
            }
            #[cfg(feature = "cluster")]
            Step::Refund { committed_us } => {
                self.uses(uses::REFUND);
                self.packed.extend_from_slice(&double(committed_us));
            }
            _ => {}
        }
    }

    /// Ends the check, which joins the last run if it is equal to the checks of that run.
    fn end(&mut self) {
        let (runs, check) = self.packed.split_at_mut(self.check);
        if let Some((checks, charges)) = runs.get_mut(self.last..).and_then(|run| run.split_first_chunk_mut())
            && *charges == check[checks.len()..]
            && let Some(more) = u16::from_le_bytes(*checks).checked_add(1)
        {
            *checks = more.to_le_bytes();
            self.packed.truncate(self.check);
        } else {
            self.last = self.check;
        }
    }

    fn uses(&mut self, flag: u8) {
        self.packed[0] |= flag;
    }
}

/// The counts that a step with a charge concerns: the charge's own count, and the count of its denials if they lead to
/// a ban. A refund concerns no count of denials, because the charge was admitted; of the changes by hand, only the end
/// of a ban does.
pub(super) fn counts(charge: &Charge, step: Step) -> impl Iterator<Item = PolicyCost<'_>> {
    ban::policy_costs(charge).take(if has_ban_count(charge, step) { 2 } else { 1 })
}

/// Whether a step with a charge also concerns the count of the charge's denials.
fn has_ban_count(charge: &Charge, step: Step) -> bool {
    match step {
        Step::ByHand(change) => change == CountChange::Unban && charge.policy.ban().is_some(),
        #[cfg(feature = "cluster")]
        Step::Refund { .. } => false,
        _ => charge.policy.ban().is_some(),
    }
}

/// The number of counts that a request concerns. The script calls each of them a charge. The open holds of a count are
/// one more, as is the count of denials; no policy has both.
pub(super) fn counts_of(request: &Request) -> usize {
    request.charges().map(|(charge, _)| counts_of_charge(charge, request.step)).sum()
}

/// The number of counts that a step with a charge concerns.
pub(super) fn counts_of_charge(charge: &Charge, step: Step) -> usize {
    1 + usize::from(has_ban_count(charge, step) || holds_of(charge, step).is_some())
}

/// The usage of a policy in one step.
fn usage_of(policy: &Policy, step: Step) -> u8 {
    let commit = match policy.count_rejected() {
        _ if policy.is_ban() => usage::BAN,
        true => usage::COMMIT | usage::COUNT_REJECTED,
        false => usage::COMMIT,
    };
    match step {
        Step::Commit | Step::Change(_) => commit,
        Step::ByHand(CountChange::Record(_)) => usage::RECORD,
        Step::ByHand(CountChange::Credit(_)) => usage::CREDIT,
        Step::ByHand(CountChange::Ban(_)) => usage::BAN_BY_HAND,
        Step::ByHand(CountChange::Unban) if policy.is_ban() => usage::FORGET_DENIALS,
        Step::ByHand(CountChange::Unban) => usage::UNBAN,
        #[cfg(feature = "cluster")]
        Step::Evaluate => usage::EVALUATE,
        #[cfg(feature = "cluster")]
        Step::Reject if policy.is_ban() => commit,
        #[cfg(feature = "cluster")]
        Step::Reject => usage::EVALUATE | commit,
        #[cfg(feature = "cluster")]
        Step::Refund { .. } => usage::REFUND,
    }
}

/// The flag of a shadow policy in one step. A refund and a change by hand decide nothing.
fn shadow_flag(step: Step) -> u8 {
    match step {
        Step::ByHand(_) => 0,
        #[cfg(feature = "cluster")]
        Step::Refund { .. } => 0,
        _ => usage::SHADOW,
    }
}

/// Packs a number as a double. Windows are validated to be below 2^53 microseconds, so no digit is lost.
#[expect(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        check::Check,
        hold::HoldChange,
        policy::Unsettled,
        store::redis::call::{
            outgoing::{Charges, Outgoing},
            progress::Progress,
            redis_key::Slots,
        },
    };

    /// The runs of one check.
    fn packed(charges: &[(&Policy, u32)]) -> Vec<u8> {
        let mut runs = Runs::new();
        runs.begin(charges.len());
        for &(policy, cost) in charges {
            runs.add(PolicyCost { policy, cost }, Step::Commit, false);
        }
        runs.end();
        runs.packed
    }

    /// One charge: algorithm, usage, limit 10, a minute, resolution 1, cost.
    fn log(usage: u8, cost: u8) -> Vec<u8> {
        [&[1, usage, 10, 0, 0, 0][..], &60e6_f64.to_le_bytes(), &1_f64.to_le_bytes(), &[cost, 0, 0, 0]].concat()
    }

    #[test]
    fn a_check_of_one_charge_is_written_as_without_shadow_policies() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let plain = [&[1, 1, 0, 1][..], &log(0, 3)].concat();
        assert_eq!(packed(&[(&policy, 3)]), plain);
        assert_eq!(packed(&[(&policy.with_shadow(true), 3)]), plain);
    }

    /// The keys and the runs of a whole call.
    fn written(check: Check, step: Step) -> (Vec<String>, Vec<u8>) {
        let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
        let outgoing = Arc::new(Outgoing::new(check, keys, Progress::new(false), None));
        let request = Request { outgoing, charges: Charges::All, step };
        let mut command = Cmd::new();
        write(&mut command, &RedisKeys::new("t:", Slots::OneServer), None, std::iter::once(&request));
        let mut arguments: Vec<Vec<u8>> = command
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            })
            .collect();
        let runs = arguments.pop().unwrap();
        let mut texts = arguments.into_iter().map(|key| String::from_utf8(key).unwrap());
        assert_eq!(texts.next().unwrap(), texts.len().to_string(), "the number of keys");
        (texts.collect(), runs)
    }

    #[test]
    fn the_calls_of_plain_policies_have_not_one_byte_for_holds() {
        let plain = Policy::per_minute("p", 10).unwrap();
        let head = [1, 1, 0, 1];
        let alone = written(Check::new("a", &plain, 3), Step::Commit);
        assert_eq!(alone, (vec!["t:{a}:p:l5:1m".to_owned()], [&head[..], &log(0, 3)].concat()));
        let other = Policy::per_minute("q", 10).unwrap();
        let (keys, runs) = written(Check::new("a", &plain, 3).and("a", &other, 1).unwrap(), Step::Commit);
        assert_eq!(keys, ["t:{a}:p:l5:1m", "t:{a}:q:l5:1m"]);
        assert_eq!(runs, [&[33, 1, 0, 2][..], &log(0, 3), &log(0, 1)].concat());
    }

    #[test]
    fn the_holds_of_a_policy_follow_its_count() {
        let ttl = Duration::from_secs(30);
        let policy = Policy::per_minute("p", 10).unwrap();
        let charged = policy.clone().with_holds(Holds::new().with_ttl(ttl)).unwrap();
        let released = policy.with_holds(Holds::new().with_ttl(ttl).with_unsettled(Unsettled::Release)).unwrap();
        let keys = ["t:{a}:p:l5:1m", "t:{a}:p(holds):l5:1m"].map(str::to_owned).to_vec();
        let count = |cost| [&[9], &log(0, cost)[1..]].concat();
        // The fields of holds: 8, usage, what becomes of unsettled ones, TTL, id, units to charge.
        let holds = |usage, unsettled, id: u64, actual: u32| {
            let ttl = 30e6_f64.to_le_bytes();
            [&[8, usage, unsettled, 0, 0, 0][..], &ttl, &id.to_be_bytes(), &actual.to_le_bytes()].concat()
        };
        // Log, several charges, holds.
        let head = [161, 1, 0, 2];
        let runs = |count: Vec<u8>, holds: Vec<u8>| (keys.clone(), [&head[..], &count, &holds].concat());
        assert_eq!(written(Check::new("a", &charged, 3), Step::Commit), runs(count(3), holds(0, 0, 0, 0)));

        let hold = Check::hold("a", &released, 3).unwrap();
        let open = hold.charges()[0].open_hold().unwrap();
        let id = open.id.get();
        assert_eq!(written(hold, Step::Commit), runs(count(3), holds(0, 1, id, 0)));
        let changed = |change| written(Check::of_open_hold(open.clone()), Step::Change(change));
        assert_eq!(changed(HoldChange::Settle(7)), runs(count(0), holds(1, 1, id, 7)));
        assert_eq!(changed(HoldChange::Renew), runs(count(0), holds(2, 1, id, 0)));
    }

    #[test]
    fn only_shadow_charges_of_larger_checks_have_the_flag() {
        let (policy, shadow) = (Policy::per_minute("p", 10).unwrap(), Policy::per_minute("s", 10).unwrap());
        let head = [33, 1, 0, 2];
        assert_eq!(packed(&[(&policy, 3), (&shadow, 1)]), [&head[..], &log(0, 3), &log(0, 1)].concat());
        let shadow = shadow.with_shadow(true);
        assert_eq!(packed(&[(&policy, 3), (&shadow, 1)]), [&head[..], &log(0, 3), &log(16, 1)].concat());
        let counting = shadow.with_count_rejected(true);
        assert_eq!(packed(&[(&policy, 3), (&counting, 1)]), [&head[..], &log(0, 3), &log(17, 1)].concat());
        let banning = policy.with_shadow(true).ban_after(2, Policy::MAX_WINDOW).unwrap();
        let charge = Check::new("k", &banning, 1).take_last().unwrap();
        let usages: Vec<u8> = counts(&charge, Step::Commit)
            .map(|count| {
                let mut runs = Runs::new();
                runs.begin(2);
                runs.add(count, Step::Commit, false);
                runs.packed[5]
            })
            .collect();
        assert_eq!(usages, [16, 24], "a ban of a shadow policy decides nothing either");
    }
}
