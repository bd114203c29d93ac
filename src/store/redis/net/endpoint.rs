//! A server to dial: its address, its login, and the certificates that TLS trusts.

#[cfg(any(feature = "cluster", feature = "sentinel", feature = "tls"))]
use redis::ConnectionAddr;
use redis::{ConnectionInfo, ProtocolVersion};

#[cfg(feature = "tls")]
use super::tls::Tls;

/// The address of a server, and how connections to it are made. It is built once and dialled many times.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) info: ConnectionInfo,
    /// `None` for a server without TLS.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

impl Endpoint {
    /// The same login, database and certificates on another host.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(crate) fn on_host(&self, host: String, port: u16) -> Self {
        let addr = match self.info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.with_info(self.info.clone().set_addr(addr))
    }

    /// The same server, asked to speak RESP2.
    pub(crate) fn with_resp2(&self) -> Self {
        self.with_info(with_protocol(self.info.clone(), ProtocolVersion::RESP2))
    }

    fn with_info(&self, info: ConnectionInfo) -> Self {
        Self {
            info,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        }
    }

    /// Whether connections to the server use TLS.
    #[cfg(any(feature = "sentinel", feature = "tls"))]
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The host, also if it stands for the name of a master. Empty for a socket.
    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(crate) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }
}

/// Sets the version of the protocol with which an address is dialled.
pub(crate) fn with_protocol(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings)
}
