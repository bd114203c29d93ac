//! The client that a command looks at, and what the command says beside its table.

use tollgate::{Key, Limiter, RedisStore};

/// A client of the service, in the store of the service.
pub(crate) struct Client {
    pub(crate) limiter: Limiter,
    pub(crate) store: RedisStore,
    pub(crate) key: Key,
}

/// What a command says beside its table.
#[derive(Default)]
pub(super) struct Report {
    /// Whether anything is counted or held for the client.
    pub(super) has_found: bool,
    advice: Vec<String>,
}

impl Report {
    /// Adds advice, once: some of it is about the server, and each policy leads to it.
    pub(super) fn advise(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            if !self.advice.contains(&line) {
                self.advice.push(line);
            }
        }
    }

    pub(super) fn into_advice(self) -> Vec<String> {
        self.advice
    }
}

/// What remains of a denial that another process remembers.
pub(super) const DENIALS: &str = "processes of the service remember denials for up to a second, so the client may get \
                                  429 for so long";
