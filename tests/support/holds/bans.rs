//! The oracle of bans: a list of denials.

use std::time::Duration;

use tollgate::Policy;
use tollgate::store::{Charge, Outcome};

/// When a policy bans, and to which length its bans grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ban {
    pub(super) denials: usize,
    pub(super) duration: Duration,
    pub(super) longest: Option<Duration>,
}

impl Ban {
    /// Whether a further ban may be longer than the first.
    pub(super) fn grows(self) -> bool {
        self.longest.is_some_and(|longest| longest > self.duration)
    }

    pub(super) fn set(self, policy: Policy) -> Policy {
        let policy = policy.ban_after(u32::try_from(self.denials).unwrap(), self.duration);
        match self.longest {
            Some(longest) => policy.growing_to(longest),
            None => policy,
        }
    }
}

/// The denials of one key under one policy.
#[derive(Default)]
pub(super) struct BanOracle {
    denials_us: Vec<u64>,
    ends_us: u64,
    /// How long the last ban lasted, and when that is forgotten.
    last_us: u64,
    forgotten_us: u64,
}

impl BanOracle {
    pub(super) fn is_banned(&self, now_us: u64) -> bool {
        self.ends_us > now_us
    }

    /// Counts a denial, which may lead to a ban.
    pub(super) fn deny(&mut self, ban: Ban, policy: &Policy, now_us: u64) {
        let first_us = micros(ban.duration);
        self.denials_us.retain(|at_us| at_us + first_us > now_us);
        self.denials_us.push(now_us);
        if self.denials_us.len() < ban.denials {
            return;
        }
        let is_another = now_us < self.forgotten_us;
        let length_us = match ban.longest {
            Some(longest) if is_another => (2 * self.last_us).min(micros(longest)).max(first_us),
            _ => first_us,
        };
        let quiet_us = length_us.max(first_us).max(policy.window().map_or(0, micros));
        self.ends_us = now_us + length_us;
        (self.last_us, self.forgotten_us) = (length_us, self.ends_us + quiet_us);
        self.denials_us.clear();
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
