//! Stalls and stops of a worker process while Redis is healthy.

use std::process::{self, Command, Stdio};
use std::{thread, time::Duration};

use tokio::time::sleep;

/// The stopped part of every 100 ms.
const STOPPED: Duration = Duration::from_millis(60);
const RUNNING: Duration = Duration::from_millis(40);

/// Starts the [`Interference`](crate::load::Interference) with this name. The interference lasts until the process
/// ends.
pub(crate) fn start(name: &str) {
    match name {
        "Stalls" => drop(tokio::task::spawn_local(stall())),
        "Pauses" => pause(),
        _ => {}
    }
}

async fn stall() {
    loop {
        // Blocks the executor, as a handler does that hashes a password.
        thread::sleep(STOPPED);
        sleep(RUNNING).await;
    }
}

/// A shell sends the signals, because a stopped process cannot resume itself.
fn pause() {
    let script = format!(
        "while kill -STOP $0 2>/dev/null; do sleep {}; kill -CONT $0; sleep {}; done",
        STOPPED.as_secs_f64(),
        RUNNING.as_secs_f64()
    );
    let shell = Command::new("sh").args(["-c", &script, &process::id().to_string()]).stdin(Stdio::null()).spawn();
    drop(shell.unwrap());
}
