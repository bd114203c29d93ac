//! How far a dial has come.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether the host of a server with TLS has accepted the connection of a dial, so that only the handshake is missing.
///
/// A server computes handshakes one after the other, so it may be late without a packet being lost. The progress of a
/// dial without TLS is not recorded: its handshake costs the server nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialProgress(Arc<AtomicBool>);

impl DialProgress {
    #[cfg(feature = "tls")]
    pub(crate) fn is_accepted(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_handshake(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
