//! What servers have done for the calls that have a policy each, whatever they have answered. Redis keys have the names
//! of policies, and hashes of keys.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::{database::Database, reply::Bytes};
use crate::{keys::TOLD_KEYS, plan::mode::Mode};

#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// How often a server has charged a call.
    charged: BTreeMap<u64, u64>,
    /// The servers that have run scripts for a key.
    served: BTreeMap<u64, BTreeSet<usize>>,
}

impl Done {
    pub(crate) fn charges(&self, call: u64) -> u64 {
        self.charged.get(&call).copied().unwrap_or(0)
    }

    /// The only server that has ever run a script for the key of a call.
    pub(crate) fn only_server(&self, call: u64) -> Option<usize> {
        let servers = self.served.get(&(call % TOLD_KEYS)).filter(|servers| servers.len() == 1)?;
        servers.first().copied()
    }
}

thread_local! {
    static DONE: RefCell<Done> = RefCell::default();
}

/// Takes what was done on this thread.
pub(crate) fn take() -> Done {
    DONE.take()
}

/// The call that a Redis key is about, if its policy is that of a call.
fn call_of(key: &[u8]) -> Option<u64> {
    let name = format!(":{}-", Mode::Told);
    let start = key.windows(name.len()).position(|part| part == name.as_bytes())? + name.len();
    let digits = key[start..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.map(|digit| u64::from(digit - b'0')).reduce(|number, digit| number * 10 + digit)
}

/// The values of such keys before a script runs.
pub(super) struct Before(Vec<(u64, Bytes, Option<Bytes>)>);

fn value(database: &mut Database, key: &[u8]) -> Option<Bytes> {
    database.text(key).ok().flatten().cloned()
}

impl Before {
    pub(super) fn of(keys: &[Bytes], database: &mut Database) -> Self {
        let calls = keys.iter().filter_map(|key| Some((call_of(key)?, key)));
        Self(calls.map(|(call, key)| (call, key.clone(), value(database, key))).collect())
    }

    /// A server has run a script.
    pub(super) fn ran(self, server: usize, database: &mut Database) {
        DONE.with_borrow_mut(|done| {
            for (call, key, before) in self.0 {
                if value(database, &key) != before {
                    *done.charged.entry(call).or_default() += 1;
                }
                done.served.entry(call % TOLD_KEYS).or_default().insert(server);
            }
        });
    }
}
