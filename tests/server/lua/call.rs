//! Calls of the script without the store, in the format of `lua/FORMAT.md`.

use tollgate::redis::{Connection, Pipeline, Script};

pub(crate) use super::policy::{
    BAN_BY_HAND, COMMIT, COUNT_REJECTED, EVALUATE, FIXED_WINDOW, Policy, REFUND, SLIDING_WINDOW_COUNTER,
    SLIDING_WINDOW_LOG, TOKEN_BUCKET, UNBAN,
};
use super::report::{Numbers, Report};

pub(crate) const SCRIPT: &str = include!("../../../lua/script.rs");

/// The checks of a call: runs of equal checks, whose charges have these costs under one policy.
pub(crate) fn checks(policy: Policy, usage: u8, runs: &[(u16, &[u64])]) -> Vec<u8> {
    // What the call uses: the algorithm; 16 for refunds; 32 for checks of several charges.
    let several = runs.iter().any(|(_, costs)| costs.len() > 1);
    let mut packed = vec![(1 << (policy.algorithm - 1)) + 16 * u8::from(usage == REFUND) + 32 * u8::from(several)];
    for (checks, costs) in runs {
        packed.extend(checks.to_le_bytes());
        packed.push(u8::try_from(costs.len()).unwrap());
        for cost in *costs {
            packed.extend(policy.packed(usage));
            packed.extend((*cost as f64).to_le_bytes());
        }
    }
    packed
}

/// Adds a check with a single charge to a pipeline, by a client's clock.
pub(crate) fn pipe(pipeline: &mut Pipeline, script: &Script, key: &str, policy: Policy, cost: u64, now_us: u64) {
    let call = pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(key);
    call.arg(checks(policy, COMMIT, &[(1, &[cost])])).arg(now_us);
}

/// A script and a connection to its server.
pub(crate) struct Caller {
    pub(crate) connection: Connection,
    pub(crate) script: Script,
}

impl Caller {
    /// Sends one check with a single charge. Without `now_us` the script takes the server's time.
    pub(crate) fn check(&mut self, key: &str, policy: Policy, usage: u8, cost: u64, now_us: Option<u64>) -> Report {
        let mut call = self.script.prepare_invoke();
        call.key(key)
            .arg(checks(policy, usage, &[(1, &[cost])]))
            .arg(now_us.map_or_else(String::new, |us| us.to_string()));
        let reply: Vec<u8> = call.invoke(&mut self.connection).unwrap();
        Numbers::read(&reply, 1).report(policy, cost)
    }

    /// Refunds a charge that was made at `charged_us`.
    pub(crate) fn refund(&mut self, key: &str, policy: Policy, cost: u64, charged_us: u64, now_us: u64) {
        let mut call = self.script.prepare_invoke();
        let refund = [checks(policy, REFUND, &[(1, &[cost])]), (charged_us as f64).to_le_bytes().to_vec()].concat();
        call.key(key).arg(refund).arg(now_us);
        let reply: Vec<u8> = call.invoke(&mut self.connection).unwrap();
        Numbers::read(&reply, 1);
    }
}
