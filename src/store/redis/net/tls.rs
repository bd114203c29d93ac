//! TLS connections: certificates that are read once, handshakes, and what is wrong with the certificate of a server, in
//! words and dates.
//!
//! Names stand without quotes, because texts of servers are cut where they begin to quote.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use std::{env, fs, io, path::PathBuf};

use redis::{ConnectionAddr, ConnectionInfo};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{first_dial::DialProgress, login::Source, tcp};
use crate::error::ConfigError;

/// The certificates of a store, as PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// What servers are verified with. `None`: with the certificates that the operating system trusts.
    pub(crate) roots: Option<Source<Vec<u8>>>,
    /// The chain and the key with which this process identifies itself.
    pub(crate) client: Option<Source<(Vec<u8>, Vec<u8>)>>,
}

/// Certificates of one time.
#[derive(Eq, PartialEq)]
struct Pem {
    roots: Option<Arc<Vec<u8>>>,
    client: Option<Arc<(Vec<u8>, Vec<u8>)>>,
}

impl Certificates {
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_none() && self.client.is_none()
    }

    fn now(&self) -> Result<Pem, Unusable> {
        let failed = |setting| move |error: io::Error| invalid(setting, &format!("the source has failed: {error}"));
        let roots = self.roots.as_ref().map(Source::get).transpose().map_err(failed("root_certificates"))?;
        let client = self.client.as_ref().map(Source::get).transpose().map_err(failed("client_certificate"))?;
        Ok(Pem { roots, client })
    }
}

/// What connections with TLS trust and show.
pub(crate) struct Tls {
    certificates: Certificates,
    /// The certificates of the system. They are read once.
    system: Option<Arc<RootCertStore>>,
    /// The last certificates, parsed. They are parsed again when they change.
    latest: Mutex<(Pem, TlsConnector)>,
}

impl Tls {
    /// Parses the certificates, or reads those of the operating system, so that a wrong one is an error here and not at
    /// each dial.
    pub(crate) fn new(certificates: &Certificates) -> Result<Self, ConfigError> {
        let system = match certificates.roots {
            Some(_) => None,
            None => Some(Arc::new(system_roots()?)),
        };
        let pem = certificates.now()?;
        let connector = connector(&pem, system.as_ref())?;
        Ok(Self { certificates: certificates.clone(), system, latest: Mutex::new((pem, connector)) })
    }

    /// Connects to a server and shakes hands. `progress` learns that the server has accepted the connection.
    /// `naming_advice` belongs to the error of a certificate for another name.
    pub(crate) async fn connect(
        &self,
        info: &ConnectionInfo,
        naming_advice: Option<&str>,
        progress: &DialProgress,
    ) -> io::Result<TlsStream<TcpStream>> {
        let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the address has no TLS"));
        };
        let name = ServerName::try_from(host.clone());
        let name = name.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the host is no valid name"))?;
        let connector = self.connector().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.plain()))?;
        let stream = tcp::connect(host, *port, info.tcp_settings()).await?;
        progress.is_accepted(stream.peer_addr()?);
        connector.connect(name, stream).await.map_err(|error| explained(error, naming_advice))
    }

    /// The connector with the present certificates. While they are the same, sessions are resumed.
    fn connector(&self) -> Result<TlsConnector, Unusable> {
        let pem = self.certificates.now()?;
        // A panic under the lock leaves valid certificates.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.0 != pem {
            let connector = connector(&pem, self.system.as_ref())?;
            *latest = (pem, connector);
        }
        Ok(latest.1.clone())
    }
}

/// Certificates that cannot be used. No error contains them.
enum Unusable {
    /// Those of a setting: the method of `RedisStoreBuilder`, and what is wrong.
    Given(&'static str, String),
    /// Those that the operating system trusts.
    Trusted(String),
}

impl Unusable {
    /// The text without quotes, because texts of dials are cut where they begin to quote.
    fn plain(self) -> String {
        match self {
            Self::Given(setting, reason) => format!("{setting}: {reason}"),
            error => ConfigError::from(error).to_string(),
        }
    }
}

impl From<Unusable> for ConfigError {
    fn from(error: Unusable) -> Self {
        Self::new(match error {
            Unusable::Given(setting, reason) => format!(
                "`{setting}`: {reason}; give it the content of a PEM file, `std::fs::read(path)?`, which has lines \
                 like -----BEGIN CERTIFICATE-----"
            ),
            Unusable::Trusted(reason) => format!(
                "the certificates that the operating system trusts: {reason}; correct SSL_CERT_FILE and SSL_CERT_DIR, \
                 install the package ca-certificates, or name the authority of the server with \
                 `RedisStoreBuilder::root_certificates`"
            ),
        })
    }
}

fn connector(pem: &Pem, system: Option<&Arc<RootCertStore>>) -> Result<TlsConnector, Unusable> {
    let roots = match (&pem.roots, system) {
        (None, Some(system)) => Arc::clone(system),
        (pem, _) => Arc::new(own_roots(pem.as_ref().map_or(&[], |pem| pem))?),
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Unusable::Trusted(error.to_string()))?;
    let builder = builder.with_root_certificates(roots);
    let config = match pem.client.as_deref() {
        None => builder.with_no_client_auth(),
        Some((chain_pem, key_pem)) => {
            let invalid = |reason: &str| invalid("client_certificate", reason);
            let chain = chain(chain_pem).map_err(|reason| invalid(&format!("the chain: {reason}")))?;
            let key = PrivateKeyDer::from_pem_slice(key_pem);
            let key = key.map_err(|_| invalid("there is no private key in the second argument"))?;
            // Also fails if the key belongs to another certificate.
            builder.with_client_auth_cert(chain, key).map_err(|error| invalid(&error.to_string()))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The cryptography provider of the process, or ring.
///
/// ring is not installed for the process: the application may install its own later, which fails if another one is
/// there.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().map_or_else(|| Arc::new(ring::default_provider()), Arc::clone)
}

/// The certificates that the caller trusts.
fn own_roots(pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem).map_err(|reason| invalid("root_certificates", &reason))? {
        roots.add(certificate).map_err(|error| invalid("root_certificates", &error.to_string()))?;
    }
    Ok(roots)
}

/// The certificates that the operating system trusts. A file that cannot be read is an error that names it.
fn system_roots() -> Result<RootCertStore, Unusable> {
    let found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.first() {
        let file = malformed_system_file().map_or_else(String::new, |file| format!(" ({})", file.display()));
        return Err(Unusable::Trusted(format!("{error}{file}")));
    }
    let mut roots = RootCertStore::empty();
    // Systems carry a few old certificates that rustls does not accept.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(Unusable::Trusted("there are none".to_owned())),
        _ => Ok(roots),
    }
}

/// The file of the operating system's certificates that cannot be parsed. The error of its reader does not name it.
fn malformed_system_file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from);
    let is_default = set("SSL_CERT_FILE").is_none() && set("SSL_CERT_DIR").is_none();
    let directories = ["/etc/ssl/certs", "/etc/pki/tls/certs"].map(PathBuf::from);
    let directories = set("SSL_CERT_DIR").into_iter().chain(directories.into_iter().filter(|_| is_default));
    let files = directories.filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
    let mut files = set("SSL_CERT_FILE").into_iter().chain(files.map(|entry| entry.path()));
    files.find(|file| CertificateDer::pem_file_iter(file).is_ok_and(|mut found| found.any(|one| one.is_err())))
}

/// The certificates in a PEM text, at least one.
fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| format!("it cannot be read: {error:?}"))?;
    if certificates.is_empty() { Err("there is no certificate".to_owned()) } else { Ok(certificates) }
}

fn invalid(setting: &'static str, reason: &str) -> Unusable {
    Unusable::Given(setting, reason.to_owned())
}

/// The most names of a certificate that an error shows.
const MOST_NAMES: usize = 4;

/// The error of a handshake, which explains a certificate that is refused. `naming_advice` says how a server that no
/// URL names is named as in its certificate.
pub(super) fn explained(error: io::Error, naming_advice: Option<&str>) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let text = match cause {
        Some(Error::InvalidCertificate(cause)) => text_of(cause, naming_advice),
        _ => None,
    };
    text.map_or(error, |text| io::Error::new(io::ErrorKind::InvalidData, text))
}

fn text_of(cause: &CertificateError, naming_advice: Option<&str>) -> Option<String> {
    use CertificateError::{ExpiredContext, NotValidForNameContext, NotValidYetContext, UnknownIssuer};

    Some(match cause {
        NotValidForNameContext { expected, presented } => {
            let (expected, presented) = (expected.to_str(), names(presented));
            let text = format!("the server's certificate is not valid for the name {expected}; {presented}");
            match naming_advice {
                Some(advice) => format!("{text}; {advice}"),
                None => text,
            }
        }
        ExpiredContext { time, not_after } => {
            format!("the server's certificate has expired on {}; here it is {}", date(*not_after), date(*time))
        }
        NotValidYetContext { time, not_before } => {
            format!("the server's certificate is valid from {}; here it is {}", date(*not_before), date(*time))
        }
        UnknownIssuer => "the server's certificate is from an authority that is not trusted".to_owned(),
        _ => return None,
    })
}

/// The names of a certificate. rustls writes them like `DnsName("redis.example")`.
fn names(presented: &[String]) -> String {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_' | '*' | ':');
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(&**name, |(_, inner)| inner);
        inner.chars().filter(|char| is_part(*char)).collect::<String>()
    };
    let shown: Vec<_> = presented.iter().take(MOST_NAMES).map(plain).collect();
    match presented.len() {
        0 => "it is valid for no name".to_owned(),
        count if count > MOST_NAMES => format!("it is valid for {} and {} more", shown.join(", "), count - MOST_NAMES),
        _ => format!("it is valid for {}", shown.join(", ")),
    }
}

fn date(time: UnixTime) -> String {
    // The latest time that the format has: the year 9999.
    const LATEST: u64 = 253_402_300_799;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs().min(LATEST)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_certificate_is_described_by_four_of_its_names() {
        let names = |count| super::names(&(0..count).map(|name| format!("DnsName(\"n{name}.x\")")).collect::<Vec<_>>());
        assert_eq!(names(0), "it is valid for no name");
        assert_eq!(names(4), "it is valid for n0.x, n1.x, n2.x, n3.x");
        assert_eq!(names(6), "it is valid for n0.x, n1.x, n2.x, n3.x and 2 more");
    }
}
