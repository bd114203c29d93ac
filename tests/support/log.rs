//! The `tracing` output of a test, in memory.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Mutex};

use tracing::{Level, subscriber::DefaultGuard};

/// The lines that this thread writes to `tracing`.
#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures events of `level` and above until the guard is dropped.
    pub(crate) fn start(level: Level) -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .without_time()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// Removes and returns the lines since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        let bytes = mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
