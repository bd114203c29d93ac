//! `pk`: telling a client which of its partitions a quota belongs to.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{error::ConfigError, key::Key};

/// Makes the `pk` of the RateLimit fields, which tells apart whose quota is meant without telling who that is.
///
/// A client of one user needs none: it has one partition. One that acts for several, say a gateway, learns by it which
/// of its requests share a quota. Only [`HeaderStyle::Draft11`](super::HeaderStyle::Draft11) has the parameter.
///
/// # Examples
///
/// ```
/// use tollgate::{ConfigError, Key, Policy, headers::PartitionKeys};
///
/// # fn main() -> Result<(), ConfigError> {
/// let secret = "at least sixteen bytes, from the environment";
/// let per_user = Policy::per_minute("per-user", 60)?.with_partition_keys(PartitionKeys::hmac(secret)?);
/// // Names of tenants are no secret here.
/// let label = |tenant: &Key| tenant.encoded().to_vec();
/// let per_tenant = Policy::per_minute("per-tenant", 600)?.with_partition_keys(PartitionKeys::label(label));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PartitionKeys(Arc<Source>);

enum Source {
    Hmac(Hmac<Sha256>),
    Label(Box<Label>),
}

type Label = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKeys {
    /// The shortest secret, in bytes: shorter ones can be guessed, and with them whose key it is.
    pub const SHORTEST_SECRET: usize = 16;
    /// Goes before the key, so that a secret which also hashes keys for Redis makes other hashes there: no encoded key
    /// holds a 0.
    const DOMAIN: &[u8] = b"pk\0";
    /// So many bytes of an HMAC are told: enough to tell partitions apart, for nothing is proven by them.
    const LENGTH: usize = 12;

    /// Tells 12 bytes of the HMAC-SHA-256 of the [`Key`] under `secret`, after `pk` and a byte of 0.
    ///
    /// A plain hash of an address or an API key could be found by trying them all. All instances of a service need the
    /// same secret; it is not shown by `Debug`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::SecretTooShort`] below [`SHORTEST_SECRET`](Self::SHORTEST_SECRET).
    pub fn hmac(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let secret = secret.as_ref();
        if secret.len() < Self::SHORTEST_SECRET {
            return Err(ConfigError::SecretTooShort { length: secret.len(), least: Self::SHORTEST_SECRET });
        }
        let hmac = Hmac::<Sha256>::new_from_slice(secret).expect("an HMAC takes keys of any length");
        Ok(Self(Arc::new(Source::Hmac(hmac.chain_update(Self::DOMAIN)))))
    }

    /// Tells what `label` makes of the key, as it is: everybody who sees a response can read it.
    ///
    /// A few bytes that name a plan, a region, a tenant whose name is public. Never an address, an API key, or what
    /// can be turned back into one.
    pub fn label(label: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Source::Label(Box::new(label))))
    }

    pub(crate) fn of(&self, key: &Key) -> PartitionKey {
        PartitionKey(Arc::new(match &*self.0 {
            Source::Hmac(hmac) => {
                hmac.clone().chain_update(key.encoded()).finalize().into_bytes()[..Self::LENGTH].into()
            }
            Source::Label(label) => label(key),
        }))
    }
}

impl PartialEq for PartitionKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for PartitionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Source::Hmac(_) => "Hmac(..)",
            Source::Label(_) => "Label(..)",
        })
    }
}

/// One `pk`. A single pointer, for every decision has room for one.
#[derive(Clone, Debug)]
pub(crate) struct PartitionKey(Arc<Vec<u8>>);

impl PartitionKey {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
