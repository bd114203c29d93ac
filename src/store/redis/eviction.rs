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
    observe::{Event, Warning},
};

/// Whether the eviction policy of the server still has to be requested.
#[derive(Debug, Default)]
pub(super) struct EvictionCheck(AtomicU8);

/// There is no observer.
const OFF: u8 = 0;
/// The next check requests the policy.
const DUE: u8 = 1;
/// The policy was requested.
const DONE: u8 = 2;

impl EvictionCheck {
    /// Makes a request due if there is an observer.
    pub(super) fn observer_changed(&self, has_observer: bool) {
        self.0.store(if has_observer { DUE } else { OFF }, Ordering::Relaxed);
    }

    /// Makes a request due again.
    fn retry(&self) {
        self.0.store(DUE, Ordering::Relaxed);
    }

    /// Returns true to one caller when a request is due.
    fn is_due(&self) -> bool {
        let exchange = || self.0.compare_exchange(DUE, DONE, Ordering::Relaxed, Ordering::Relaxed);
        self.0.load(Ordering::Relaxed) == DUE && exchange().is_ok()
    }
}

/// Requests the eviction policy if a request is due. A task does so, because the check has its answer already.
pub(super) fn ask_if_due(eviction: &Arc<EvictionCheck>, client: &Arc<Client>) {
    if eviction.is_due()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(ask(Arc::clone(eviction), Arc::clone(client)));
    }
}

/// Requests the eviction policy and reports it, unless it is `noeviction`.
async fn ask(eviction: Arc<EvictionCheck>, client: Arc<Client>) {
    let Ok(runtime) = client.runtime() else { return };
    // A random slot: the next attempt asks another master of a cluster, if this one is unavailable.
    let slot = client.target.slot_of(&SystemClock.now_us().to_ne_bytes());
    let Ok(mut connection) = client.connect(&runtime.pool, slot).await else { return eviction.retry() };
    match policy(&mut connection).await {
        Ok(Some(policy)) if policy != "noeviction" => {
            if let Some(observer) = client.observer.get() {
                observer.on_event(&Event::of_warning(Warning::eviction(&policy)));
            }
        }
        // No reply: the next check asks again.
        Err(error) if error.is_io_error() => eviction.retry(),
        // Any other error is permanent, such as a missing permission. Limits work without the reply.
        _ => {}
    }
}

/// The eviction policy of the server. `None` if its INFO names none.
async fn policy(connection: &mut RoutedConnection) -> RedisResult<Option<String>> {
    let info: String = connection.query(redis::cmd("INFO").arg("memory")).await?;
    Ok(info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::to_owned))
}
