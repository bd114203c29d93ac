//! A server to dial: who names it, its address, its login, and the certificates that TLS trusts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{borrow::Cow, fmt, time::Duration};

use redis::{ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult};
use tokio::time::Instant;

use super::{login::Logins, redact::Passwords};
#[cfg(feature = "tls")]
use super::{
    login::Source,
    tls::{Certificates, Tls},
};
use crate::error::ConfigError;
#[cfg(feature = "tls")]
use std::sync::OnceLock;

/// The address of a server, and how connections to it are made. It is built once and dialled many times.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) info: ConnectionInfo,
    /// Replaces the login of `info` at each dial.
    pub(crate) logins: Option<Logins>,
    /// `None` for a server without TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Arc<Tls>>,
    /// Whether the scheme of the URL is right. Endpoints from one URL share it.
    pub(crate) scheme: Scheme,
    /// Whether the server speaks RESP3. Endpoints from one URL share it.
    pub(crate) resp3: Resp3,
    /// Who has named the host, if it was not the URL.
    pub(crate) announcer: Option<Announcer>,
}

/// Whether the scheme of a URL is known to be right, because a dial has succeeded. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scheme(Arc<AtomicBool>);

impl Scheme {
    pub(crate) fn is_right(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn proves_right(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether servers have spoken RESP3, and since when they hang up instead. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resp3(Arc<Mutex<Handshakes>>);

#[derive(Debug, Default)]
struct Handshakes {
    have_succeeded: bool,
    /// Since when servers hang up, and no dial has ended in another way.
    hung_up: Option<Instant>,
}

/// How long servers that have spoken RESP3 may hang up: for a restart, but not for ever, because others may have
/// replaced them.
const LONGEST_RESTART: Duration = Duration::from_secs(10);

impl Resp3 {
    /// Records that a server speaks RESP3.
    pub(crate) fn is_spoken(&self) {
        *self.lock() = Handshakes { have_succeeded: true, hung_up: None };
    }

    /// Records that a server has hung up. Returns whether that means that it lacks RESP3.
    pub(crate) fn is_missing(&self) -> bool {
        let mut handshakes = self.lock();
        let since = *handshakes.hung_up.get_or_insert_with(Instant::now);
        !handshakes.have_succeeded || since.elapsed() >= LONGEST_RESTART
    }

    /// A dial that begins.
    pub(crate) fn dial(&self) -> HandshakeDial {
        HandshakeDial { resp3: self.clone(), has_hung_up: false }
    }

    fn lock(&self) -> MutexGuard<'_, Handshakes> {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A dial. When it ends and the server has not hung up, also because its time is over, earlier hang-ups are forgotten.
pub(crate) struct HandshakeDial {
    resp3: Resp3,
    pub(crate) has_hung_up: bool,
}

impl Drop for HandshakeDial {
    fn drop(&mut self) {
        if !self.has_hung_up {
            self.resp3.lock().hung_up = None;
        }
    }
}

impl Endpoint {
    /// The server at an address, without TLS.
    pub(crate) fn plain(info: ConnectionInfo, logins: Option<Logins>) -> Self {
        Self {
            info,
            logins,
            #[cfg(feature = "tls")]
            tls: None,
            scheme: Scheme::default(),
            resp3: Resp3::default(),
            announcer: None,
        }
    }

    /// The same login, database and certificates on another host, which `announcer` has named.
    pub(crate) fn on_host(&self, host: String, port: u16, announcer: Option<Announcer>) -> Self {
        let addr = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let scheme = match announcer {
            // A cluster may announce ports of the other kind.
            Some(Announcer::Cluster) => Scheme::default(),
            _ => self.scheme.clone(),
        };
        Self { announcer, scheme, ..self.with_info(self.info.clone().set_addr(addr)) }
    }

    /// The same server, asked to speak RESP2.
    pub(crate) fn with_resp2(&self) -> Self {
        self.with_info(with_protocol(self.info.clone(), ProtocolVersion::RESP2))
    }

    /// The same server, with the login that a dial uses now.
    pub(crate) fn logged_in(&self) -> RedisResult<Self> {
        match &self.logins {
            None => Ok(self.clone()),
            Some(logins) => Ok(self.with_info(logins.apply(self.info.clone())?)),
        }
    }

    fn with_info(&self, info: ConnectionInfo) -> Self {
        Self { info, ..self.clone() }
    }

    /// Whether connections to the server use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The host, also if it stands for the name of a master. Empty for a socket.
    pub(crate) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.secrets())
    }

    /// The password of the URL, and the latest ones of its source.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let replaced = self.logins.iter().flat_map(Logins::passwords);
        self.info.redis_settings().password().map(Cow::Borrowed).into_iter().chain(replaced.map(Cow::Owned))
    }

    /// How the servers that an announcer names are named as in their certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn naming_advice(&self) -> Option<&'static str> {
        self.announcer.map(Announcer::advice)
    }
}

/// Sets the version of the protocol with which an address is dialled.
pub(crate) fn with_protocol(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings)
}

/// Who has named the host of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Announcer {
    Cluster,
    Sentinel,
}

impl Announcer {
    /// How servers are named as in their certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Cluster => {
                "the nodes have announced this address: set cluster-announce-hostname and \
                 cluster-preferred-endpoint-type hostname on each node, or add the address to its certificate"
            }
            Self::Sentinel => {
                "a sentinel has announced this address: set resolve-hostnames and announce-hostnames on each sentinel, \
                 or add the address to the certificate"
            }
        }
    }
}

/// What the URLs of a store do not say. Certificates are parsed once, for the first URL with TLS. Without the feature
/// `tls` there are none.
#[derive(Clone, Default)]
pub(crate) struct Security {
    /// Replaces the logins in the URLs of servers.
    pub(crate) logins: Option<Logins>,
    /// Replaces the logins in the URLs of sentinels.
    pub(crate) sentinel_logins: Option<Logins>,
    #[cfg(feature = "tls")]
    certificates: Certificates,
    #[cfg(feature = "tls")]
    parsed: OnceLock<Arc<Tls>>,
}

#[cfg(feature = "tls")]
impl Security {
    pub(crate) fn set_roots(&mut self, roots: Source<Vec<u8>>) {
        self.certificates.roots = Some(roots);
        self.parsed = OnceLock::new();
    }

    pub(crate) fn set_client(&mut self, client: Source<(Vec<u8>, Vec<u8>)>) {
        self.certificates.client = Some(client);
        self.parsed = OnceLock::new();
    }

    /// Adds the login and the certificates to the address of a server, if it has TLS.
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        let plain = Endpoint::plain(info, self.logins.clone());
        let tls = if plain.is_encrypted() { Some(self.tls()?) } else { None };
        Ok(Endpoint { tls, ..plain })
    }

    fn tls(&self) -> Result<Arc<Tls>, ConfigError> {
        match self.parsed.get() {
            Some(tls) => Ok(Arc::clone(tls)),
            None => {
                let tls = Arc::new(Tls::new(&self.certificates)?);
                Ok(Arc::clone(self.parsed.get_or_init(|| tls)))
            }
        }
    }

    /// Refuses certificates for a server without TLS: the login would cross the network in clear.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> Result<(), ConfigError> {
        match self.certificates.is_empty() || endpoint.is_encrypted() {
            true => Ok(()),
            false => Err(ConfigError::new(
                "certificates are set, but the URL is without TLS, so a password would be sent in plain text; write \
                 rediss:// instead of redis://, or leave the certificates out",
            )),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Security {
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        Ok(Endpoint::plain(info, self.logins.clone()))
    }

    pub(crate) fn check(&self, _: &Endpoint) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Shows what is set, but none of its text.
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Security");
        shown.field("logins", &self.logins.is_some());
        #[cfg(feature = "tls")]
        {
            let Certificates { roots, client } = &self.certificates;
            shown.field("roots", &roots.is_some()).field("client", &client.is_some());
        }
        shown.finish_non_exhaustive()
    }
}
