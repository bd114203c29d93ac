//! Large headers of every pattern that a parser could be slow on. Sizes include the names of the headers.

use std::time::Duration;

use http::{HeaderName, request::Parts};
use tollgate::{ClientIp, Key, key::PrefixList};

use super::{append, grammar::PROXY, parts, timed};

/// The longest time that a header of about `size` bytes takes.
pub(crate) fn longest(size: usize) -> Duration {
    let all = PrefixList::dangerously_everybody;
    let clients = [
        ("x-forwarded-for", ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap()),
        ("x-forwarded-for", ClientIp::x_forwarded_for(all()).unwrap()),
        ("x-forwarded-for", ClientIp::x_forwarded_for(64).unwrap()),
        ("forwarded", ClientIp::forwarded(["10.0.0.0/8"]).unwrap()),
        ("forwarded", ClientIp::forwarded(all()).unwrap()),
        ("forwarded", ClientIp::forwarded(64).unwrap()),
        ("x-real-ip", ClientIp::header("x-real-ip", ["10.0.0.0/8"]).unwrap()),
    ];
    let mut longest = (Duration::ZERO, String::new());
    for (header, client) in &clients {
        for pattern in PATTERNS {
            // The last size is the most that the extractor reads of `Forwarded`.
            for (lines, bytes) in [(1, size), (2, size), (1_000, size), (size / 20, size), (1, 32 * 1024)] {
                let head = filled(header, pattern, lines, bytes);
                let time = timed(|| drop(client.resolve(&head)));
                if time > longest.0 {
                    longest = (time, format!("{header}: {pattern:?}, {bytes} bytes in {lines} lines"));
                }
            }
        }
    }
    let subject = vec![b'x'; size];
    let hashed = timed(|| drop(Key::new(&subject)));
    println!("longest parse: {:.0?}, {}; the hash of a key of {size} bytes: {hashed:.0?}", longest.0, longest.1);
    longest.0
}

const PATTERNS: [&str; 22] = [
    ",",
    " ",
    " ,",
    "a",
    "\u{e9}",
    "1.2.3.4,",
    "10.0.0.1,",
    "10.0.0.1 , ,,",
    "[",
    "]:1,",
    "unknown,",
    ":",
    ";",
    "=",
    "\"",
    "\\",
    "\"\\\",",
    "for=10.0.0.1,",
    "for=10.0.0.1;",
    "a=b;",
    "for=\"[fd00::1]:80\",",
    "x=\"\\\"\";,",
];

fn filled(header: &str, pattern: &str, lines: usize, bytes: usize) -> Parts {
    let name: HeaderName = header.parse().unwrap();
    let mut head = parts(Some(PROXY));
    let length = if lines == 1 { bytes } else { (bytes / lines).saturating_sub(name.as_str().len() + 4) };
    // A longer `Forwarded` header would be rejected before it is parsed.
    let line: Vec<u8> = pattern.bytes().cycle().take(length).collect();
    for _ in 0..lines {
        append(&mut head.headers, &name, &line);
    }
    head
}
