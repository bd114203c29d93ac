//! Readiness: a round trip to each master that does what a check does, without a charge; and a warning of a server that
//! may evict the keys of limits, which is asked once, after the first check, if there is an observer.

use std::sync::atomic::{AtomicU8, Ordering};
use std::{sync::Arc, time::Duration};

use redis::RedisResult;
use smallvec::smallvec;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::call::outgoing::{Outgoing, Request};
use super::call::{PerRuntime, no_runtime};
use super::call::{client::Client, progress::Progress};
use super::net::routed::RoutedConnection;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::observe::{Event, Warning};
use crate::runtime::{deadline::within, stalls::Begin};
use crate::{check::Check, key::Key, policy::Policy};

/// The longest wait for slow dials and late replies.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats attempts until each master has answered, or one has refused, or [`TIMEOUT`] has passed.
pub(super) async fn ready(client: Arc<Client>) -> Result<(), Error> {
    let runtime = client.runtime()?;
    let begin = Begin::now(TIMEOUT).ok_or_else(no_runtime)?;
    let mut last_kind = ErrorKind::Unavailable;
    loop {
        let left = TIMEOUT.saturating_sub(begin.running(Instant::now()));
        match within(left, attempt(&client, &runtime)).await {
            Some(Err(error)) if error.is_late() && !left.is_zero() => last_kind = error.kind(),
            Some(Err(error)) if error.is_late() => return Err(timed_out(error.kind())),
            Some(result) => return result,
            None => return Err(timed_out(last_kind)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The error after [`TIMEOUT`]. The error of the last attempt is not used, because it names a shorter time.
fn timed_out(kind: ErrorKind) -> Error {
    let missing = if kind == ErrorKind::Deadline { "answer" } else { "connection" };
    Error::new(kind, format!("no {missing} within {TIMEOUT:?}"))
}

/// Probes all masters at the same time. Returns the first error.
async fn attempt(client: &Arc<Client>, runtime: &Arc<PerRuntime>) -> Result<(), Error> {
    let numbers = runtime.pool.probe_numbers(|number| client.keys.slot_of(&Key::from(number))).await?;
    let mut attempts = JoinSet::new();
    for number in numbers {
        attempts.spawn(probe(Arc::clone(client), Arc::clone(runtime), Key::from(number)));
    }
    while let Some(result) = attempts.join_next().await {
        result.unwrap_or_else(|_| Err(given_up()))?;
    }
    Ok(())
}

/// Tests on one master what a check needs: a connection, the script, and the permission to write. Leaves nothing
/// behind.
async fn probe(client: Arc<Client>, runtime: Arc<PerRuntime>, key: Key) -> Result<(), Error> {
    let connection = runtime.pool.get(client.keys.slot_of(&key)).await?;
    let policy = Policy::per_second("ready", 1)?;
    let check = Check::new(key.clone(), &policy, 0);
    let outgoing = Outgoing::new(check, smallvec![key.clone()], Progress::new(false), None);
    let request = Request::whole(Arc::new(outgoing));
    client.call(connection.clone(), std::iter::once(&request)).await?.swap_remove(0)?;
    // The script calls these commands only now and then, and a reset calls UNLINK. They do not change a key that does
    // not exist, but a replica and a full server refuse them as they refuse a charge.
    let redis_key = client.keys.text(&key, &policy);
    let mut probes = JoinSet::new();
    for (command, arguments) in PROBED_COMMANDS {
        let mut command = redis::cmd(command);
        command.arg(&redis_key).arg(arguments);
        let mut connection = connection.clone();
        probes.spawn(async move { connection.query::<redis::Value>(&command).await });
    }
    while let Some(probed) = probes.join_next().await {
        let probed = probed.map_err(|_| given_up())?;
        probed.map_err(|error| client.failed(&connection, &error))?;
    }
    Ok(())
}

/// Commands that are probed, each with the arguments that follow the key.
const PROBED_COMMANDS: [(&str, &[&str]); 3] = [("SETRANGE", &["0", ""]), ("PEXPIRE", &["1"]), ("UNLINK", &[])];

/// The error of a task that ended with its runtime.
pub(super) fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime has ended")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eviction_policy_is_requested_once_for_an_observer_and_again_if_no_reply_came() {
        let check = EvictionCheck::default();
        assert!(!check.is_due());
        check.observer_changed(true);
        assert!(check.is_due() && !check.is_due());
        check.retry();
        assert!(check.is_due() && !check.is_due());
    }
}
