//! The wait of one call: until it is charged, and the upstream asks for no pause.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use super::{settings::Settings, throttled::Throttled};
use crate::key::Key;

/// Waits until a call of `cost` for `key` may be made, and charges it.
///
/// # Errors
///
/// [`Throttled`] as soon as it is certain that the call would wait for longer than it may.
pub(super) async fn turn(settings: Arc<Settings>, key: Key, cost: u32) -> Result<(), Throttled> {
    let max_wait = settings.max_wait;
    let is_shadow = settings.policy.is_shadow();
    if !is_shadow {
        settings.policy.check_cost(cost).map_err(|error| Throttled::too_large(error, max_wait))?;
    }
    let started = Instant::now();
    let left = || max_wait.saturating_sub(started.elapsed());
    loop {
        match settings.acquire(&key, cost, left()).await {
            Ok(decision) if !decision.is_allowed() => {
                return Err(Throttled::denied(decision, settings.paused(&key), max_wait));
            }
            // If a pause has begun while the store was asked, the call takes another turn, with a charge of its own:
            // the upstream counts the call after the pause, and the first charge may have left the window by then.
            Ok(_) if settings.paused(&key).is_none() => return Ok(()),
            // A shadow policy makes no call wait, so only pauses keep the call back.
            Ok(_) if is_shadow => return outlast_pauses(&settings, &key, left).await,
            Ok(_) => {}
            Err(error) if !settings.failure.resolve(Err(error.clone())).is_allowed() => {
                return Err(Throttled::without_verdict(error, settings.paused(&key), max_wait));
            }
            // Open: no queue has kept the call back, so only pauses do.
            Err(_) => return outlast_pauses(&settings, &key, left).await,
        }
    }
}

/// Waits until the upstream asks for no pause.
async fn outlast_pauses(settings: &Settings, key: &Key, left: impl Fn() -> Duration) -> Result<(), Throttled> {
    while let Some(pause) = settings.paused(key) {
        if pause > left() {
            return Err(Throttled::paused(pause, settings.max_wait));
        }
        sleep(pause).await;
    }
    Ok(())
}
