//! Who names a server that no URL names.

/// Who has named the host of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Announcer {
    #[cfg(feature = "cluster")]
    Cluster,
    #[cfg(feature = "sentinel")]
    Sentinel,
}

impl Announcer {
    /// How servers are named as in their certificates.
    #[cfg(feature = "tls")]
    pub(crate) fn advice(self) -> &'static str {
        match self {
            #[cfg(feature = "cluster")]
            Self::Cluster => {
                "the nodes have announced this address: set cluster-announce-hostname and \
                 cluster-preferred-endpoint-type hostname on each node, or add the address to its certificate"
            }
            #[cfg(feature = "sentinel")]
            Self::Sentinel => {
                "a sentinel has announced this address: set resolve-hostnames and announce-hostnames on each sentinel, \
                 or add the address to the certificate"
            }
        }
    }
}
