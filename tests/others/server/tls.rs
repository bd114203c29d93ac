//! A certificate for 127.0.0.1, which clients have to be told to trust.

use std::{error::Error, sync::Arc};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// The acceptor, and the certificate as PEM. HTTP/2 comes first for clients that offer both versions.
pub(crate) fn self_signed() -> Result<(TlsAcceptor, String), Box<dyn Error>> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), cert.pem()))
}
