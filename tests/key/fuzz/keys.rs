//! Keys: each encoding can be decoded, so no two inputs have the same key.

use http::header::AUTHORIZATION;
use tollgate::{ApiKey, HeaderKey, Key, KeyExtractor};

use super::{append, damage::damage, parts};
use crate::support::random::Random;

/// Asserts for `count` subjects that their keys can be decoded.
pub(crate) fn assert_injective(seed: u64, count: u64) {
    let mut random = Random(seed);
    let mut parts = parts(None);
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let name = "x-tenant".parse().unwrap();
    for number in 0..count {
        let subject = subject(&mut random);
        let key = Key::new(&subject);
        assert_decodes(&key, &subject);

        // A joined key is the keys of its parts in parentheses, or their hash.
        let other = Key::new(self::subject(&mut random));
        let joined = Key::join([key.clone(), other.clone()]);
        let expected = [b"(", key.encoded(), b"|", other.encoded(), b"|)"].concat();
        match joined.encoded() {
            hash if hash.starts_with(b"()#") => assert!(expected.len() > 192 && hash.len() == 35),
            encoded => assert_eq!(encoded, expected),
        }
        assert!(!joined.encoded().iter().any(|byte| b"{} \r\n".contains(byte) || !byte.is_ascii_graphic()));

        parts.headers.clear();
        append(&mut parts.headers, &name, &subject);
        append(&mut parts.headers, &AUTHORIZATION, &[b"Bearer ".as_slice(), &subject].concat());
        let value = parts.headers[&name].clone();
        // Whitespace around a value is not part of the value.
        let value = value.as_bytes().trim_ascii();
        match tenant.extract(&parts) {
            Ok(Some(key)) => assert_decodes(&key, value),
            Ok(None) => panic!("exempt, seed {seed}, input {number}"),
            Err(_) => assert!(value.is_empty(), "seed {seed}, input {number}"),
        }
        if let Ok(key) = ApiKey::bearer().extract(&parts) {
            assert_eq!(key.unwrap(), Key::hashed(value), "seed {seed}, input {number}");
        }
    }
}

/// A subject, usually short, often with characters that have a meaning in encoded keys.
fn subject(random: &mut Random) -> Vec<u8> {
    let seeds: [&[u8]; 12] = [
        b"",
        b"user:17",
        b"*missing",
        b"*",
        b"%",
        b"%25",
        b"(a|b|)",
        b"()#00",
        b"{tag}",
        b"2001:db8::/64",
        b"a b\t",
        b"#0123456789ABCDEF0123456789ABCDEF",
    ];
    let mut text = random.pick(&seeds).to_vec();
    while random.one_in(3) {
        text.extend_from_slice(random.pick(&seeds));
    }
    if random.one_in(8) {
        let length = random.pick(&[30, 60, 63, 64, 65, 200]);
        text.resize(length, random.next() as u8);
    }
    damage(random, &mut text);
    text
}

/// Asserts that the key decodes to the subject, or is a hash of a long subject.
fn assert_decodes(key: &Key, subject: &[u8]) {
    let encoded = key.encoded();
    assert!(encoded.iter().all(|byte| byte.is_ascii_graphic() && !b"{}*(|)".contains(byte)), "{subject:?}");
    if subject.len() > 64 {
        assert!(encoded.len() == 33 && *key == Key::hashed(subject), "{subject:?}");
        return;
    }
    let mut decoded = Vec::new();
    let mut bytes = encoded.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, bytes.as_slice()) {
            (b'%', []) => {}
            (b'%', [high, low, ..]) => {
                decoded.push(u8::from_str_radix(str::from_utf8(&[*high, *low]).unwrap(), 16).unwrap());
                bytes.nth(1);
            }
            _ => decoded.push(byte),
        }
    }
    assert_eq!(decoded, subject);
}
