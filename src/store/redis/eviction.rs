//! Whether the server may drop the keys of limits: asked once, on the back of the first check, for those who listen.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use redis::RedisResult;
use tokio::runtime::Handle;

use super::{connection::Connection, shared::Shared};
use crate::{
    clock::{Clock, SystemClock},
    observe::Warning,
};

/// How far the question is.
#[derive(Debug, Default)]
pub(super) struct Eviction(AtomicU8);

const NOBODY_LISTENS: u8 = 0;
const WANTED: u8 = 1;
const ASKED: u8 = 2;

impl Eviction {
    /// Whether a warning would be heard from now on.
    pub(super) fn listens(&self, listens: bool) {
        self.0.store(if listens { WANTED } else { NOBODY_LISTENS }, Ordering::Relaxed);
    }

    fn ask_again(&self) {
        self.0.store(WANTED, Ordering::Relaxed);
    }

    /// Whether it is to be asked, and nobody else has noticed.
    fn is_due(&self) -> bool {
        let exchange = || self.0.compare_exchange(WANTED, ASKED, Ordering::Relaxed, Ordering::Relaxed);
        self.0.load(Ordering::Relaxed) == WANTED && exchange().is_ok()
    }
}

/// Asks, if nobody has, in a task of its own: the check has its answer already.
pub(super) fn touch(shared: &Arc<Shared>) {
    if shared.eviction.is_due()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(ask(Arc::clone(shared)));
    }
}

async fn ask(shared: Arc<Shared>) {
    let Ok(link) = shared.link() else { return };
    // Any master, and another one the next time: one of a cluster's may be away.
    let slot = shared.slot_of(&SystemClock.now_us().to_ne_bytes());
    let Ok(mut connection) = shared.connect(&link, slot).await else { return shared.eviction.ask_again() };
    match policy(&mut connection).await {
        Ok(Some(policy)) if policy != "noeviction" => {
            if let Some(observer) = shared.observer.get() {
                observer.on_warning(&Warning::Eviction { policy });
            }
        }
        // No answer: after the next check.
        Err(error) if error.is_io_error() => shared.eviction.ask_again(),
        // Not permitted, say: that stays so, and limits work without.
        _ => {}
    }
}

async fn policy(connection: &mut Connection) -> RedisResult<Option<String>> {
    let info: String = connection.query(redis::cmd("INFO").arg("memory")).await?;
    Ok(info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::to_owned))
}
