//! The keys and arguments of a call. `lua/check.lua` describes their format; `reply.rs` reads the reply.

use redis::Cmd;
use smallvec::SmallVec;

use super::{
    outgoing::{Request, Step},
    redis_key::RedisKeys,
};
use crate::{
    check::Charge,
    policy::{Algorithm, Policy},
    store::ban::{self, PolicyCost},
};

/// The numbers of the algorithms. `lua/check.lua` has the same numbers.
mod algorithm {
    pub(super) const SLIDING_WINDOW_LOG: u8 = 1;
    pub(super) const SLIDING_WINDOW_COUNTER: u8 = 2;
    pub(super) const FIXED_WINDOW: u8 = 3;
    pub(super) const TOKEN_BUCKET: u8 = 4;
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
}

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write<'a>(
    command: &mut Cmd,
    keys: &RedisKeys,
    now_us: Option<u64>,
    requests: impl Iterator<Item = &'a Request> + Clone,
) {
    command.arg(requests.clone().map(counts_of).sum::<usize>());
    let (mut policies, mut runs, mut encoded) = (Policies::default(), Runs::default(), Vec::new());
    for request in requests {
        runs.begin(counts_of(request));
        for (charge, key) in request.charges() {
            for PolicyCost { policy, cost } in counts(charge, request.step) {
                encoded.clear();
                keys.encode(&mut encoded, key, policy);
                command.arg(&encoded);
                runs.add(policies.number(policy, request.step), cost);
            }
        }
        runs.end();
    }
    command.arg(&policies.packed).arg(&runs.packed);
    if let Some(now_us) = now_us {
        command.arg(now_us);
    }
    #[cfg(feature = "cluster")]
    if let Some(times) = policies.commit_times() {
        if now_us.is_none() {
            command.arg("");
        }
        command.arg(times);
    }
}

/// The checks of a call, packed as runs of equal checks.
#[derive(Default)]
struct Runs {
    packed: Vec<u8>,
    /// Where the last run starts.
    last: usize,
    /// Where the check that is added starts.
    check: usize,
}

impl Runs {
    /// Begins a check with this number of charges, as a run of its own.
    fn begin(&mut self, charges: usize) {
        let charges =
            u8::try_from(charges).expect("a check has at most Check::MAX_CHARGES charges, of two counts each");
        self.check = self.packed.len();
        self.packed.extend_from_slice(&1_u16.to_le_bytes());
        self.packed.push(charges);
    }

    /// Adds a charge to the check.
    fn add(&mut self, policy: u16, cost: u32) {
        self.packed.extend_from_slice(&policy.to_le_bytes());
        self.packed.extend_from_slice(&cost.to_le_bytes());
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
}

/// The counts that a step with a charge concerns: the charge's own count, and the count of its denials if they lead to
/// a ban. A refund concerns no count of denials, because the charge was admitted.
pub(super) fn counts(charge: &Charge, step: Step) -> impl Iterator<Item = PolicyCost<'_>> {
    ban::policy_costs(charge).take(if has_ban_count(charge, step) { 2 } else { 1 })
}

/// Whether a step with a charge also concerns the count of the charge's denials.
#[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only a cluster has refunds"))]
fn has_ban_count(charge: &Charge, step: Step) -> bool {
    #[cfg(feature = "cluster")]
    if matches!(step, Step::Refund { .. }) {
        return false;
    }
    charge.policy.ban().is_some()
}

/// The number of counts that a request concerns. The script calls each of them a charge.
pub(super) fn counts_of(request: &Request) -> usize {
    request.charges().map(|(charge, _)| 1 + usize::from(has_ban_count(charge, request.step))).sum()
}

/// The policies of a call. A policy is sent once for each step that uses it.
#[derive(Default)]
struct Policies<'a> {
    seen: SmallVec<[(&'a Policy, Step); 4]>,
    packed: Vec<u8>,
}

impl<'a> Policies<'a> {
    /// The index of the policy in the call. Adds a policy that is not in the call yet.
    fn number(&mut self, policy: &'a Policy, step: Step) -> u16 {
        let number = self.seen.iter().position(|seen| *seen == (policy, step)).unwrap_or_else(|| {
            self.seen.push((policy, step));
            self.pack(policy, step);
            self.seen.len() - 1
        });
        u16::try_from(number).expect("a call has no more charges than fit a batch, far below 2^16")
    }

    /// For each policy the time of the commits that are refunded. `None` if the call has no refund.
    #[cfg(feature = "cluster")]
    fn commit_times(&self) -> Option<Vec<u8>> {
        let time = |(_, step): &(&Policy, Step)| match *step {
            Step::Refund { committed_us } => Some(committed_us),
            _ => None,
        };
        let has_refund = self.seen.iter().any(|seen| time(seen).is_some());
        has_refund.then(|| self.seen.iter().flat_map(|seen| double(time(seen).unwrap_or(0))).collect())
    }

    /// Appends a policy in the format of `lua/check.lua`.
    fn pack(&mut self, policy: &Policy, step: Step) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (algorithm::SLIDING_WINDOW_LOG, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (algorithm::SLIDING_WINDOW_COUNTER, 0),
            Algorithm::FixedWindow => (algorithm::FIXED_WINDOW, 0),
            Algorithm::TokenBucket => (algorithm::TOKEN_BUCKET, policy.capacity().into()),
        };
        self.packed.extend_from_slice(&[algorithm, usage_of(policy, step)]);
        self.packed.extend_from_slice(&policy.limit().to_le_bytes());
        self.packed.extend_from_slice(&double(policy.window_us()));
        self.packed.extend_from_slice(&double(parameter));
    }
}

/// The usage of a policy in one step.
fn usage_of(policy: &Policy, step: Step) -> u8 {
    let commit = match policy.count_rejected() {
        _ if policy.is_ban() => usage::BAN,
        true => usage::COMMIT | usage::COUNT_REJECTED,
        false => usage::COMMIT,
    };
    match step {
        Step::Commit => commit,
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

/// Packs a number as a double. Windows are validated to be below 2^53 microseconds, so no digit is lost.
#[expect(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}
