//! Who names a server that no URL names.

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
