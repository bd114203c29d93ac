//! The Redis key of a count: `{prefix}{{subject}}:{policy}:{form}`.

use crate::{
    key::Key,
    policy::{Algorithm, Policy},
};

/// Appends the Redis key of a subject's count under a policy.
///
/// The subject is the hash tag, so all policies of a subject share a slot of a cluster. The encoded subject
/// ([`Key::encoded`]) and a policy's name contain no braces, so no input can choose the tag. The form describes the
/// value: algorithm and format version, window and resolution in microseconds. Values of another form are never read or
/// written.
pub(crate) fn encode(encoded: &mut Vec<u8>, prefix: &str, key: &Key, policy: &Policy) {
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

/// The Redis key of the count of `key` as text. `key` is hashed already if it has to be.
pub(crate) fn text(prefix: &str, key: &Key, policy: &Policy) -> String {
    let mut encoded = Vec::new();
    encode(&mut encoded, prefix, key, policy);
    String::from_utf8(encoded).expect("the prefix is text, and all else is ASCII")
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
        let encode = |key: &str, policy: &Policy| text("t:", &Key::from(key), policy);
        assert_eq!(encode("a", &log), "t:{a}:p:l4:1000000");
        assert_eq!(encode("a", &coarse), "t:{a}:p:l4:1000000/10000");
        assert_eq!(encode("a", &fixed), "t:{a}:p:f2:1000000");
        assert_eq!(encode("}{x}", &log), "t:{%7D%7Bx%7D}:p:l4:1000000");
    }
}
