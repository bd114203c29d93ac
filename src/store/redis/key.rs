//! Where a count lives: `{prefix}{{subject}}:{policy}:{form}`.

use super::{RedisStore, shared::Shared};
use crate::{
    key::Key,
    policy::{Algorithm, Policy},
};

/// Appends the Redis key of a subject's count under a policy.
///
/// The subject is the hash tag, so all policies of a subject share a slot of a cluster. It is encoded without braces
/// ([`Key::encoded`]) and a policy's name has none, so no input can choose the tag. The form says how the value is to
/// be read: algorithm and format version, window and resolution in microseconds. Values of another form are never
/// touched.
pub(super) fn encode(encoded: &mut Vec<u8>, prefix: &str, key: &Key, policy: &Policy) {
    let (algorithm, window, resolution) = policy.form();
    let form: &[u8] = match algorithm {
        Algorithm::FixedWindow => b":f2:",
        Algorithm::SlidingWindowCounter => b":c2:",
        Algorithm::SlidingWindowLog => b":l4:",
        Algorithm::TokenBucket => b":b3:",
    };
    encoded.extend_from_slice(prefix.as_bytes());
    encoded.push(b'{');
    encoded.extend_from_slice(key.encoded());
    encoded.extend_from_slice(b"}:");
    encoded.extend_from_slice(policy.name().as_bytes());
    encoded.extend_from_slice(form);
    encoded.extend_from_slice(itoa::Buffer::new().format(window).as_bytes());
    if resolution > 1 {
        encoded.push(b'/');
        encoded.extend_from_slice(itoa::Buffer::new().format(resolution).as_bytes());
    }
}

impl Shared {
    /// Where Redis has the count of a key that is as Redis gets it.
    pub(super) fn redis_key(&self, key: &Key, policy: &Policy) -> String {
        let mut encoded = Vec::new();
        encode(&mut encoded, &self.prefix, key, policy);
        String::from_utf8(encoded).expect("the prefix is text, and all else is ASCII")
    }
}

impl RedisStore {
    /// Where Redis has what `key` spends under `policy`: for looking at it by hand. How it is kept is nobody's business
    /// and may change; to forget it, call [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, RedisStore};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy = Policy::per_minute("per-client", 60)?;
    /// let store = RedisStore::connect("redis://127.0.0.1:6379")?;
    /// assert_eq!(store.redis_key("alice", &policy), "tollgate:{$_YV7qj_yBCJkNRv0uWtufg}:per-client:l4:60000000");
    ///
    /// let store = RedisStore::builder().plain_keys().connect("redis://127.0.0.1:6379")?;
    /// assert_eq!(store.redis_key("alice", &policy), "tollgate:{alice}:per-client:l4:60000000");
    /// # Ok(())
    /// # }
    /// ```
    pub fn redis_key(&self, key: impl Into<Key>, policy: &Policy) -> String {
        self.shared.redis_key(&self.shared.seal.sealed(&key.into()), policy)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_subject_chooses_the_tag() {
        let log = Policy::per_second("p", 1).unwrap();
        let coarse = log.clone().with_resolution(Duration::from_millis(10)).unwrap();
        let fixed = log.clone().with_algorithm(Algorithm::FixedWindow);
        let encode = |key: &str, policy: &Policy| {
            let mut encoded = Vec::new();
            super::encode(&mut encoded, "t:", &Key::from(key), policy);
            String::from_utf8(encoded).unwrap()
        };
        assert_eq!(encode("a", &log), "t:{a}:p:l4:1000000");
        assert_eq!(encode("a", &coarse), "t:{a}:p:l4:1000000/10000");
        assert_eq!(encode("a", &fixed), "t:{a}:p:f2:1000000");
        assert_eq!(encode("}{x}", &log), "t:{%7D%7Bx%7D}:p:l4:1000000");
    }
}
