//! Lines for operators, on standard output and standard error. A reader that has gone, or that stands still, delays and
//! ends nothing: a thread for each stream writes, and what fails is dropped.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{sync::LazyLock, thread};

/// Lines that wait to be written. Further ones are dropped.
const MOST_WAITING: usize = 64;

static STDOUT: LazyLock<SyncSender<String>> = LazyLock::new(|| writer(io::stdout()));
static STDERR: LazyLock<SyncSender<String>> = LazyLock::new(|| writer(io::stderr()));

fn writer(mut stream: impl Write + Send + 'static) -> SyncSender<String> {
    let (sender, lines) = sync_channel::<String>(MOST_WAITING);
    let write = move || {
        for line in lines {
            let _ = stream.write_all(line.as_bytes());
        }
    };
    // Without a thread, the lines are dropped too.
    drop(thread::Builder::new().name("lines".to_owned()).spawn(write));
    sender
}

/// Says what the service does.
pub(crate) fn inform(text: &str) {
    let _ = STDOUT.try_send(format!("{text}\n"));
}

/// Says what is wrong.
pub(crate) fn warn(text: &str) {
    let _ = STDERR.try_send(format!("tollgate-envoy: {text}\n"));
}
