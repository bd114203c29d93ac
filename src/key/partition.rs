//! Partition keys: the `pk` parameter, which names the partition of a policy that a quota belongs to.

use std::{fmt, sync::Arc};

use super::{secret::Secret, subject::Key};
use crate::error::ConfigError;

/// Computes the `pk` parameter of the RateLimit fields, which distinguishes the partitions of a policy without showing
/// their keys.
///
/// A client that acts for one user has one partition and needs no `pk`. A client that acts for several users, such as a
/// gateway, needs `pk` to see which of its requests share a quota. Only
/// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11) sends the parameter.
///
/// # Examples
///
/// ```
/// use tollgate::{ConfigError, Key, Policy, headers::PartitionKeys};
///
/// # fn main() -> Result<(), ConfigError> {
/// let secret = "at least sixteen bytes, from the environment";
/// let per_user = Policy::per_minute("per-user", 60)?.with_partition_keys(PartitionKeys::hmac(secret)?);
/// // The names of tenants are public here.
/// let label = |tenant: &Key| tenant.encoded().to_vec();
/// let per_tenant = Policy::per_minute("per-tenant", 600)?.with_partition_keys(PartitionKeys::label(label));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PartitionKeys(Arc<Labelling>);

enum Labelling {
    Hmac(Secret),
    Label(Box<Label>),
}

type Label = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKeys {
    /// Prefix of the hashed text. The prefix keeps `pk` different from the hash of the same key in Redis with the same
    /// secret, because no encoded key contains a 0 byte.
    const DOMAIN: &[u8] = b"pk\0";
    /// Length of a `pk` in bytes. 12 bytes suffice to distinguish partitions, and nothing is authenticated with a `pk`.
    const LENGTH: usize = 12;

    /// Sends the first 12 bytes of an HMAC-SHA-256 with the key `secret`. The hashed text is `pk`, a 0 byte and the
    /// encoded [`Key`].
    ///
    /// A secret is required, because a plain hash of an address or an API key can be inverted by trial. All instances
    /// of a service need the same secret. `Debug` does not show the secret.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `secret` has fewer than 16 bytes: it can be found by trial, and then so can the keys.
    pub fn hmac(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let secret = Secret::new(secret.as_ref())?.with_prefix(Self::DOMAIN);
        Ok(Self(Arc::new(Labelling::Hmac(secret))))
    }

    /// Sends the bytes that `label` returns for the key. Any reader of a response can read these bytes.
    ///
    /// Return a few bytes that name a plan, a region or a tenant whose name is public. Never return an address, an API
    /// key, or bytes from which either can be recovered.
    pub fn label(label: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Labelling::Label(Box::new(label))))
    }

    pub(crate) fn of(&self, key: &Key) -> PartitionKey {
        PartitionKey(Arc::new(match &*self.0 {
            Labelling::Hmac(secret) => secret.hash::<{ Self::LENGTH }>(key).to_vec(),
            Labelling::Label(label) => label(key),
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
            Labelling::Hmac(_) => "Hmac(..)",
            Labelling::Label(_) => "Label(..)",
        })
    }
}

/// The value of one `pk`. A single pointer, because every policy in a decision reserves space for this type.
#[derive(Clone, Debug)]
pub(crate) struct PartitionKey(Arc<Vec<u8>>);

impl PartitionKey {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
