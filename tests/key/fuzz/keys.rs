//! Keys: each can be read back, so no two inputs have the same one.

use http::header::AUTHORIZATION;
use tollgate::{ApiKey, HeaderKey, Key, KeyExtractor};

use super::{append, parts, random::Random};

pub(crate) fn stay_apart(seed: u64, count: u64) {
    let mut random = Random(seed);
    let mut head = parts(None);
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let name = "x-tenant".parse().unwrap();
    for number in 0..count {
        let subject = subject(&mut random);
        let key = Key::new(&subject);
        check(&key, &subject);

        // Joined keys are the keys of their parts, in parentheses.
        let other = Key::new(self::subject(&mut random));
        let joined = Key::join([key.clone(), other.clone()]);
        let spelt = [b"(", key.encoded(), b"|", other.encoded(), b"|)"].concat();
        match joined.encoded() {
            hash if hash.starts_with(b"()#") => assert!(spelt.len() > 192 && hash.len() == 35),
            encoded => assert_eq!(encoded, spelt),
        }
        assert!(!joined.encoded().iter().any(|byte| b"{} \r\n".contains(byte) || !byte.is_ascii_graphic()));

        head.headers.clear();
        append(&mut head.headers, &name, &subject);
        append(&mut head.headers, &AUTHORIZATION, &[b"Bearer ".as_slice(), &subject].concat());
        let value = head.headers[&name].clone();
        // Blanks around a value are not part of it.
        let value = value.as_bytes().trim_ascii();
        match tenant.extract(&head) {
            Ok(Some(key)) => check(&key, value),
            Ok(None) => panic!("exempt, seed {seed}, input {number}"),
            Err(_) => assert!(value.is_empty(), "seed {seed}, input {number}"),
        }
        if let Ok(key) = ApiKey::bearer().extract(&head) {
            assert_eq!(key.unwrap(), Key::hashed(value), "seed {seed}, input {number}");
        }
    }
}

/// Text of every kind, most of it short, and with the signs that keys are made of.
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
    random.damage(&mut text);
    text
}

/// Reads the key back.
fn check(key: &Key, subject: &[u8]) {
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
