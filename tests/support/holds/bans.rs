//! The oracle of bans: a list of denials.

use std::time::Duration;

use tollgate::{
    Policy,
    store::{Charge, Outcome},
};

/// When a policy bans.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ban {
    pub(super) denials: usize,
    pub(super) duration: Duration,
}

impl Ban {
    pub(super) fn set(self, policy: Policy) -> Policy {
        policy.ban_after(u32::try_from(self.denials).unwrap(), self.duration)
    }
}

/// The denials of one key under one policy.
#[derive(Default)]
pub(super) struct BanOracle {
    denials_us: Vec<u64>,
    ends_us: u64,
}

impl BanOracle {
    pub(super) fn is_banned(&self, now_us: u64) -> bool {
        self.ends_us > now_us
    }

    /// Counts a denial, which may lead to a ban.
    pub(super) fn deny(&mut self, ban: Ban, now_us: u64) {
        let within_us = micros(ban.duration);
        self.denials_us.retain(|at_us| at_us + within_us > now_us);
        self.denials_us.push(now_us);
        if self.denials_us.len() >= ban.denials {
            self.ends_us = now_us + within_us;
            self.denials_us.clear();
        }
    }

    /// The outcome of a charge, of that without the ban.
    pub(super) fn outcome(&self, charge: &Charge, own: Outcome, now_us: u64) -> Outcome {
        let left_us = self.ends_us.saturating_sub(now_us);
        if left_us == 0 {
            return own;
        }
        let mut banned = own;
        if can_be_denied(charge) {
            banned.fits = false;
            banned.retry_after_us = Some(own.retry_after_us.unwrap_or(0).max(left_us));
        }
        banned.available = 0;
        banned.next_us = if own.available > 0 { left_us } else { own.next_us.max(left_us) };
        banned.reset_us = own.reset_us.max(left_us);
        banned.ban_us = left_us;
        banned
    }
}

/// Whether a denial of the charge counts, and a ban denies the charge.
pub(super) fn can_be_denied(charge: &Charge) -> bool {
    (1..=charge.policy.capacity()).contains(&charge.cost)
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
