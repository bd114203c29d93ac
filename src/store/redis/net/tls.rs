//! Certificates and the cryptography provider of `rediss://`.

use redis::{Client, ConnectionInfo, TlsCertificates};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::error::ConfigError;

/// Installs ring as the process's cryptography provider, if the process has none.
///
/// redis uses the process's provider and accepts no other. Without a provider rustls panics as soon as two crates of
/// the process enable different ones.
pub(crate) fn install_crypto_provider() {
    if CryptoProvider::get_default().is_none() {
        // Another thread installed a provider first; fine.
        let _ = ring::default_provider().install_default();
    }
}

/// Adds the certificates to an address. Parses them at once, so that a wrong certificate is an error here.
///
/// Needs a [cryptography provider](install_crypto_provider).
pub(crate) fn with_certificates(
    info: ConnectionInfo,
    certificates: &TlsCertificates,
) -> Result<ConnectionInfo, ConfigError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = &certificates.root_cert {
        for certificate in chain(pem).map_err(|reason| invalid("root_certificates", &reason))? {
            roots.add(certificate).map_err(|error| invalid("root_certificates", &error.to_string()))?;
        }
    }
    if let Some(client) = &certificates.client_tls {
        let invalid = |reason: &str| invalid("client_certificate", reason);
        let chain = chain(&client.client_cert).map_err(|reason| invalid(&format!("the chain: {reason}")))?;
        let key = PrivateKeyDer::from_pem_slice(&client.client_key);
        let key = key.map_err(|_| invalid("there is no private key in the second argument"))?;
        // Also fails if the key belongs to another certificate.
        let config = ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key);
        config.map_err(|error| invalid(&error.to_string()))?;
    }
    let client = Client::build_with_tls(info, certificates.clone());
    let client = client.map_err(|error| invalid("root_certificates", &error.to_string()))?;
    Ok(client.get_connection_info().clone())
}

/// The certificates in a PEM text, at least one.
fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("it cannot be read: {error:?}"))?;
    if certificates.is_empty() { Err("there is no certificate".to_owned()) } else { Ok(certificates) }
}

fn invalid(setting: &'static str, reason: &str) -> ConfigError {
    ConfigError::InvalidCertificate { setting, reason: reason.to_owned() }
}
