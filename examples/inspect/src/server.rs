//! The Redis that the service counts in, and how the service's store names its keys there.

use std::{num::ParseIntError, time::Duration};

use tollgate::{ConfigError, RedisStore};

/// Settings of the service's store, and the connection.
pub(crate) struct Settings {
    pub(crate) servers: Servers,
    pub(crate) prefix: Option<String>,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) plain_keys: bool,
    pub(crate) hash_tags: Option<HashTags>,
    pub(crate) timeout: Duration,
    pub(crate) certificates: Option<Vec<u8>>,
    /// The client's certificate and its key.
    pub(crate) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

pub(crate) enum Servers {
    Single(String),
    Cluster(Vec<String>),
    Sentinels { urls: Vec<String>, master: String },
}

/// The number of groups of subjects on a cluster, `None` for a hash tag for each subject.
pub(crate) struct HashTags(pub(crate) Option<u16>);

impl HashTags {
    pub(crate) fn parse(text: &str) -> Result<Self, ParseIntError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|count| Self(Some(count))) }
    }
}

impl Settings {
    /// Creates the store. Makes no connection.
    pub(crate) fn store(self) -> Result<RedisStore, ConfigError> {
        // One process that asks a few times needs neither a breaker nor remembered denials.
        let mut builder = RedisStore::builder()
            .pool_size(1)
            .breaker(None)
            .deny_cache(false)
            .deadline(self.timeout)
            .first_dial_deadline(self.timeout);
        if let Some(prefix) = self.prefix {
            builder = builder.prefix(prefix);
        }
        if let Some(secret) = self.secret {
            builder = builder.key_secret(secret);
        }
        if self.plain_keys {
            builder = builder.plain_keys();
        }
        if let Some(HashTags(count)) = self.hash_tags {
            builder = builder.cluster_hash_tags(count);
        }
        if let Some(certificates) = self.certificates {
            builder = builder.root_certificates(certificates);
        }
        if let Some((chain, key)) = self.client_certificate {
            builder = builder.client_certificate((chain, key));
        }
        match self.servers {
            Servers::Single(url) => builder.open(&url),
            Servers::Cluster(urls) => builder.open_cluster(urls),
            Servers::Sentinels { urls, master } => builder.open_sentinel(urls, &master),
        }
    }
}
