//! Warns of a server that may evict the keys of limits. The server is asked once, after the first check, if there is an
//! observer.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use redis::RedisResult;
use tokio::runtime::Handle;

use super::{call::client::Client, net::routed::RoutedConnection};
use crate::{
    clock::{Clock, SystemClock},
    observe::Warning,
};

/// The state of the question for the server's eviction policy.
#[derive(Debug, Default)]
pub(super) struct EvictionCheck(AtomicU8);

/// There is no observer.
const OFF: u8 = 0;
const DUE: u8 = 1;
const DONE: u8 = 2;

impl EvictionCheck {
    /// Makes the question due if there is an observer.
    pub(super) fn observer_changed(&self, has_observer: bool) {
        self.0.store(if has_observer { DUE } else { OFF }, Ordering::Relaxed);
    }

    fn retry(&self) {
        self.0.store(DUE, Ordering::Relaxed);
    }

    /// Returns true to one caller when the question is due.
    fn is_due(&self) -> bool {
        let exchange = || self.0.compare_exchange(DUE, DONE, Ordering::Relaxed, Ordering::Relaxed);
        self.0.load(Ordering::Relaxed) == DUE && exchange().is_ok()
    }
}

/// Asks the server if the question is due. A task does so, because the check has its answer already.
pub(super) fn ask_if_due(eviction: &Arc<EvictionCheck>, client: &Arc<Client>) {
    if eviction.is_due()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(ask(Arc::clone(eviction), Arc::clone(client)));
    }
}

async fn ask(eviction: Arc<EvictionCheck>, client: Arc<Client>) {
    let Ok(runtime) = client.runtime() else { return };
    // A random slot: the next attempt asks another master of a cluster, if this one is unavailable.
    let slot = client.target.slot_of(&SystemClock.now_us().to_ne_bytes());
    let Ok(mut connection) = client.connect(&runtime.pool, slot).await else { return eviction.retry() };
    match policy(&mut connection).await {
        Ok(Some(policy)) if policy != "noeviction" => {
            if let Some(observer) = client.observer.get() {
                observer.on_warning(&Warning::Eviction { policy });
            }
        }
        // No reply: the next check asks again.
        Err(error) if error.is_io_error() => eviction.retry(),
        // For example a missing permission, which is permanent. Limits work without the answer.
        _ => {}
    }
}

async fn policy(connection: &mut RoutedConnection) -> RedisResult<Option<String>> {
    let info: String = connection.query(redis::cmd("INFO").arg("memory")).await?;
    Ok(info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::to_owned))
}
