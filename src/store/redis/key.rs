//! Where a count lives: `{prefix}{{subject}}:{form}:{policy}`.

use crate::{
    key::Key,
    policy::{Algorithm, Policy},
};

/// Appends the Redis key of a subject's count under a policy.
///
/// The subject is the hash tag, so all policies of a subject share a slot of a cluster. It is encoded without braces
/// ([`Key::encoded`]) and a policy's name has none, so no input can choose the tag. The form says how the value is to
/// be read: algorithm, format version and, where buckets are aligned to the window, the window; values of another form
/// are never touched.
pub(super) fn encode(encoded: &mut Vec<u8>, prefix: &str, key: &Key, policy: &Policy) {
    let (algorithm, window) = policy.form();
    let form: &[u8] = match algorithm {
        Algorithm::FixedWindow => b"}:f1:",
        Algorithm::SlidingWindowCounter => b"}:c1:",
        Algorithm::SlidingWindowLog => b"}:l2:",
        Algorithm::TokenBucket => b"}:b1:",
    };
    encoded.extend_from_slice(prefix.as_bytes());
    encoded.push(b'{');
    encoded.extend_from_slice(key.encoded());
    encoded.extend_from_slice(form);
    encoded.extend_from_slice(policy.name().as_bytes());
    if window > 0 {
        encoded.push(b':');
        encoded.extend_from_slice(itoa::Buffer::new().format(window).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subject_chooses_the_tag() {
        let log = Policy::per_second("p", 1).unwrap();
        let fixed = log.clone().algorithm(Algorithm::FixedWindow);
        let encode = |prefix, key: &Key, policy: &Policy| {
            let mut encoded = Vec::new();
            super::encode(&mut encoded, prefix, key, policy);
            encoded
        };
        assert_eq!(encode("t:", &Key::from("a"), &log), b"t:{a}:l2:p");
        assert_eq!(encode("t:", &Key::from("a"), &fixed), b"t:{a}:f1:p:1000000");
        assert_eq!(encode("t:", &Key::from("}{x}"), &log), b"t:{%7D%7Bx%7D}:l2:p");
    }
}
