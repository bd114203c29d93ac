//! Whether checks would be judged: a real round trip to each master, with nothing charged.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::Instant};

use super::{
    progress::Progress,
    protocol::{Request, Step},
    shared::{self, Link, Shared},
};
use crate::{
    check::Check,
    error::{Error, ErrorKind},
    key::Key,
    policy::Policy,
    runtime::{deadline::within, stalls::Begin},
};

/// How long slow dials and late answers are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Tries until each master has answered, or one has said no, or [`PATIENCE`] has passed.
pub(super) async fn ready(shared: Arc<Shared>) -> Result<(), Error> {
    let link = shared.link()?;
    let begin = Begin::now(PATIENCE).ok_or_else(shared::no_runtime)?;
    let mut late = ErrorKind::Unavailable;
    loop {
        let left = PATIENCE.saturating_sub(begin.running(Instant::now()));
        match within(left, attempt(&shared, &link)).await {
            Some(Err(error)) if error.is_late() && !left.is_zero() => late = error.kind(),
            Some(Err(error)) if error.is_late() => return Err(too_late(error.kind())),
            Some(result) => return result,
            None => return Err(too_late(late)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The error after [`PATIENCE`], which is longer than what the last attempt waited for.
fn too_late(kind: ErrorKind) -> Error {
    let missing = if kind == ErrorKind::Deadline { "answer" } else { "connection" };
    Error::new(kind, format!("no {missing} within {PATIENCE:?}"))
}

async fn attempt(shared: &Arc<Shared>, link: &Arc<Link>) -> Result<(), Error> {
    let subjects = link.pool.subjects(|subject| shared.slot_of(key(subject).encoded())).await?;
    let mut attempts = JoinSet::new();
    for subject in subjects {
        attempts.spawn(ask(Arc::clone(shared), Arc::clone(link), key(subject)));
    }
    while let Some(result) = attempts.join_next().await {
        result.unwrap_or_else(|_| Err(given_up()))?;
    }
    Ok(())
}

/// The keys are numbers; on a cluster they lead to different masters.
fn key(subject: u64) -> Key {
    Key::from(subject)
}

/// Asks one master what a check does: for a connection, for the script, and for leave to write. Leaves nothing behind.
async fn ask(shared: Arc<Shared>, link: Arc<Link>, key: Key) -> Result<(), Error> {
    let slot = shared.slot_of(key.encoded());
    let connection = link.pool.get(slot).await?;
    let policy = Policy::per_second("ready", 1)?;
    let check = Check::new(key.clone(), &policy, 0);
    let request = Request { check, step: Step::Pay, progress: Progress::new(false) };
    shared.call(connection.clone(), std::iter::once(&request)).await?.swap_remove(0)?;
    // What the script calls only now and then, and what a reset calls. Nothing of it changes a key that does not exist. A
    // replica and a full server refuse to write nothing as they would refuse a charge.
    let redis_key = shared.redis_key(&key, &policy);
    let mut tries = JoinSet::new();
    for (command, arguments) in LEAVE {
        let mut command = redis::cmd(command);
        command.arg(&redis_key).arg(arguments);
        let mut connection = connection.clone();
        tries.spawn(async move { connection.query::<redis::Value>(&command).await });
    }
    while let Some(tried) = tries.join_next().await {
        let tried = tried.map_err(|_| given_up())?;
        tried.map_err(|error| shared.failed(&connection, &error))?;
    }
    Ok(())
}

/// The commands that leave is asked for, with what follows the key.
const LEAVE: [(&str, &[&str]); 4] = [("SETRANGE", &["0", ""]), ("PEXPIRE", &["1"]), ("UNLINK", &[]), ("GET", &[])];

/// A task ends early only with its runtime.
fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the runtime has ended")
}
