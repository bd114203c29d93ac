//! How far a dial has come.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use super::followed::Tenure;

/// The address of a server with TLS that has accepted the connection of a dial, so that only the handshake is missing.
///
/// A server computes handshakes one after the other, so it may be late without a packet being lost. The progress of a
/// dial without TLS is not recorded: its handshake costs the server nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialProgress {
    server: Arc<OnceLock<SocketAddr>>,
    /// A sentinel that has accepted a connection.
    sentinel: Arc<OnceLock<SocketAddr>>,
    /// Whether a sentinel has answered.
    is_named: Arc<AtomicBool>,
    /// The tenure in which the dial of a master has begun.
    tenure: Arc<OnceLock<Tenure>>,
}

impl DialProgress {
    /// The progress of the part of this dial that asks a sentinel for the server.
    pub(crate) fn of_sentinel(&self) -> Self {
        Self { server: Arc::clone(&self.sentinel), ..Self::default() }
    }

    /// Records that the server at `address` has accepted the connection.
    #[cfg(feature = "tls")]
    pub(crate) fn is_accepted(&self, address: SocketAddr) {
        // A dial that is repeated without RESP3 has recorded it before.
        let _ = self.server.set(address);
    }

    /// Records which master the store follows while the dial begins.
    pub(crate) fn begins_in(&self, tenure: Tenure) {
        let _ = self.tenure.set(tenure);
    }

    /// Waits until the store follows another master than at the beginning.
    pub(crate) async fn is_overtaken(&self) {
        match self.tenure.get() {
            Some(tenure) => tenure.end().await,
            None => pending().await,
        }
    }

    /// Records that a sentinel has named the server.
    pub(crate) fn is_named(&self) {
        self.is_named.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_in_handshake(&self) -> bool {
        self.server().is_some()
    }

    /// The server whose part of the handshake is missing: a sentinel, until one has named the master.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        let sentinel = || self.sentinel.get().filter(|_| !self.is_named.load(Ordering::Relaxed));
        self.server.get().or_else(sentinel).copied()
    }
}
