//! How far a dial has come.

use std::sync::{Arc, OnceLock};

/// The host and port of a server with TLS that has accepted the connection of a dial, so that only the handshake is
/// missing.
///
/// A server computes handshakes one after the other, so it may be late without a packet being lost. The progress of a
/// dial without TLS is not recorded: its handshake costs the server nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialProgress(Arc<OnceLock<(String, u16)>>);

impl DialProgress {
    /// Records that `host` has accepted the connection on `port`.
    #[cfg(feature = "tls")]
    pub(crate) fn is_accepted(&self, host: &str, port: u16) {
        // A dial that is repeated without RESP3 has recorded it before.
        let _ = self.0.set((host.to_owned(), port));
    }

    pub(crate) fn is_in_handshake(&self) -> bool {
        self.0.get().is_some()
    }

    /// The server whose part of the handshake is missing.
    pub(crate) fn server(&self) -> Option<&(String, u16)> {
        self.0.get()
    }
}
