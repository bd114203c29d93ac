//! The Redis key of a count: `{prefix}{{subject}}:{policy}:{form}`.

use crate::{
    key::Key,
    policy::{Algorithm, Policy},
};

/// Appends the Redis key of a subject's count under a policy.
///
/// The subject is the hash tag, so all policies of a subject share a slot of a cluster. The encoded subject
/// ([`Key::encoded`]) and a policy's name contain no braces, so no input can choose the tag. The form describes the
/// value: algorithm and format version, window and resolution. Values of another form are never read or written.
pub(crate) fn encode(encoded: &mut Vec<u8>, prefix: &str, key: &Key, policy: &Policy) {
    let (algorithm, window, resolution) = policy.form();
    let form: &[u8] = match algorithm {
        Algorithm::FixedWindow => b":f2:",
        Algorithm::SlidingWindowCounter => b":c2:",
        Algorithm::SlidingWindowLog => b":l5:",
        Algorithm::TokenBucket => b":b3:",
    };
    encoded.extend_from_slice(prefix.as_bytes());
    encoded.push(b'{');
    encoded.extend_from_slice(key.encoded());
    encoded.extend_from_slice(b"}:");
    encoded.extend_from_slice(policy.name().as_bytes());
    encoded.extend_from_slice(form);
    push_time(encoded, window);
    if resolution > 1 {
        encoded.push(b'/');
        push_time(encoded, resolution);
    }
}

/// Appends a time in the longest unit that divides it, because Redis handles short keys faster.
fn push_time(encoded: &mut Vec<u8>, micros: u64) {
    const UNITS: [(u64, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let (length, unit) = UNITS.into_iter().find(|(length, _)| micros.is_multiple_of(*length)).unwrap_or((1, "us"));
    encoded.extend_from_slice(itoa::Buffer::new().format(micros / length).as_bytes());
    encoded.extend_from_slice(unit.as_bytes());
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
        assert_eq!(encode("a", &log), "t:{a}:p:l5:1s");
        assert_eq!(encode("a", &coarse), "t:{a}:p:l5:1s/10ms");
        assert_eq!(encode("a", &fixed), "t:{a}:p:f2:1s");
        assert_eq!(encode("}{x}", &log), "t:{%7D%7Bx%7D}:p:l5:1s");
    }

    #[test]
    fn times_are_in_the_longest_unit_that_divides_them() {
        for (micros, text) in [
            (1, "1us"),
            (1_001, "1001us"),
            (1_000, "1ms"),
            (90_000_000, "90s"),
            (60_000_000, "1m"),
            (3_600_000_000, "1h"),
            (5_400_000_000, "90m"),
            (366 * 86_400_000_000, "366d"),
        ] {
            let mut encoded = Vec::new();
            push_time(&mut encoded, micros);
            assert_eq!(encoded, text.as_bytes());
        }
    }
}
