//! What keeps a worker from running while Redis is well.

use std::{
    process::{self, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::time::sleep;

/// For so long of every hundred milliseconds.
const AWAY: Duration = Duration::from_millis(60);
const HERE: Duration = Duration::from_millis(40);

/// Begins what the name of a [`Trouble`](crate::load::Trouble) stands for; it goes on until the process ends.
pub(crate) fn begin(name: &str) {
    match name {
        "Stalls" => drop(tokio::task::spawn_local(stall())),
        "Pauses" => pause(),
        _ => {}
    }
}

async fn stall() {
    loop {
        // As a handler does that hashes a password.
        thread::sleep(AWAY);
        sleep(HERE).await;
    }
}

/// A shell does it: a process that is stopped cannot wake itself.
fn pause() {
    let script = format!(
        "while kill -STOP $0 2>/dev/null; do sleep {}; kill -CONT $0; sleep {}; done",
        AWAY.as_secs_f64(),
        HERE.as_secs_f64()
    );
    let shell = Command::new("sh").args(["-c", &script, &process::id().to_string()]).stdin(Stdio::null()).spawn();
    drop(shell.unwrap());
}
