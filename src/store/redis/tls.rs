//! What `rediss://` needs beyond its URL.

use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

/// Whether the server at `address` is to be spoken to through TLS.
pub(super) fn is_encrypted(address: &ConnectionAddr) -> bool {
    matches!(address, ConnectionAddr::TcpTls { .. })
}

/// Makes sure that rustls can be used.
///
/// redis takes the process' provider of cryptography and offers no other way to give one. Where the process has none,
/// rustls would panic as soon as two crates of it asked for different ones. A provider that is there stays.
pub(super) fn provide_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Lost against another thread: then there is one.
        let _ = ring::default_provider().install_default();
    }
}

/// The address with the certificates in it, read now, so that a wrong one is an error now.
pub(super) fn with_certificates(
    info: ConnectionInfo,
    certificates: &TlsCertificates,
) -> Result<ConnectionInfo, RedisError> {
    Ok(Client::build_with_tls(info, certificates.clone())?.get_connection_info().clone())
}
