//! The keys and arguments of a call. `lua/check.lua` describes their format; `reply.rs` reads the reply.

use redis::Cmd;

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

/// What a call uses. The script creates nothing else. `lua/check.lua` has the same flags.
mod uses {
    /// The flag of an algorithm.
    pub(super) const fn algorithm(number: u8) -> u8 {
        1 << (number - 1)
    }
    #[cfg(feature = "cluster")]
    pub(super) const REFUND: u8 = 16;
    pub(super) const SEVERAL_CHARGES: u8 = 32;
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
            for count in counts(charge, request.step) {
                encoded.clear();
                keys.encode(&mut encoded, key, count.policy);
                command.arg(&encoded);
                runs.add(count, request.step);
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
}

impl Runs {
    /// No checks.
    fn new() -> Self {
        Self { packed: vec![0], last: 1, check: 1 }
    }

    /// Begins a check with this number of charges, as a run of its own.
    fn begin(&mut self, charges: usize) {
        let charges =
            u8::try_from(charges).expect("a check has at most Check::MAX_CHARGES charges, of two counts each");
        if charges > 1 {
            self.uses(uses::SEVERAL_CHARGES);
        }
        self.check = self.packed.len();
        self.packed.extend_from_slice(&1_u16.to_le_bytes());
        self.packed.push(charges);
    }

    /// Adds a charge to the check.
    fn add(&mut self, PolicyCost { policy, cost }: PolicyCost<'_>, step: Step) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (algorithm::SLIDING_WINDOW_LOG, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (algorithm::SLIDING_WINDOW_COUNTER, 0),
            Algorithm::FixedWindow => (algorithm::FIXED_WINDOW, 0),
            Algorithm::TokenBucket => (algorithm::TOKEN_BUCKET, policy.capacity().into()),
        };
        self.uses(uses::algorithm(algorithm));
        self.packed.extend_from_slice(&[algorithm, usage_of(policy, step)]);
        self.packed.extend_from_slice(&policy.limit().to_le_bytes());
        self.packed.extend_from_slice(&double(policy.window_us()));
        self.packed.extend_from_slice(&double(parameter));
        self.packed.extend_from_slice(&cost.to_le_bytes());
        #[cfg(feature = "cluster")]
        if let Step::Refund { committed_us } = step {
            self.uses(uses::REFUND);
            self.packed.extend_from_slice(&double(committed_us));
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
