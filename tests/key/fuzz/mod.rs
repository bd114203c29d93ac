//! Input from outside, made by grammar and then broken: nothing panics, nothing takes long, nobody is mistaken.
//!
//! In short with the other tests; `tests/run --long` makes ten million of them, with optimisation.

mod grammar;
mod keys;
mod oracle;
mod random;
mod size;

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderName, HeaderValue, Request, request::Parts};
use tollgate::KeyExtractor;

use self::{grammar::Chain, oracle::Settings, random::Random};

/// How many inputs a test makes in its short form.
const SHORT: u64 = 30_000;
const LONG: u64 = 10_000_000;

/// A head to put headers into, over and over.
fn parts(peer: Option<IpAddr>) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    if let Some(peer) = peer {
        parts.extensions.insert(ConnectInfo(SocketAddr::new(peer, 4711)));
    }
    parts
}

/// Puts in what HTTP lets through, as a server would: control characters never arrive.
fn append(headers: &mut HeaderMap, name: &HeaderName, line: &[u8]) {
    let line: Vec<u8> = line.iter().copied().filter(|&byte| byte == b'\t' || (byte >= 32 && byte != 127)).collect();
    headers.append(name, HeaderValue::from_bytes(&line).unwrap());
}

/// The shortest of some runs if the first was long: the machine has other things to do as well.
fn timed(mut run: impl FnMut()) -> Duration {
    let mut time = || {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    let first = time();
    if cfg!(debug_assertions) || first < Duration::from_micros(200) {
        first
    } else {
        (0..9).map(|_| time()).min().unwrap().min(first)
    }
}

/// Compares with a plain reading of the rules, and with the truth where there is one.
fn addresses(seed: u64, count: u64) -> Duration {
    let mut random = Random(seed);
    let all = Settings::all();
    let mut heads = [parts(None), parts(Some(grammar::PROXY)), parts(Some(grammar::OUTSIDE))];
    let mut longest = Duration::ZERO;
    let (mut answers, mut refusals) = (0_u64, 0_u64);
    for number in 0..count {
        let settings = &all[random.below(all.len())];
        let chain = Chain::new(&mut random, settings);
        let head = random.weighted(&[1, 12, 1]);
        let head = &mut heads[head];
        head.headers.clear();
        for line in &chain.lines {
            append(&mut head.headers, &settings.header, line);
        }
        // Something that must not matter.
        let other = settings.another_header(&mut random);
        append(&mut head.headers, &other, b"198.51.100.77");

        let resolved = settings.client.resolve(head);
        let context = || format!("seed {seed}, input {number}, {settings:?}, {:?}", head.headers);
        assert_eq!(resolved.clone().map_err(|error| oracle::name(&error)), settings.expected(head), "{}", context());
        match &resolved {
            Ok(address) => {
                answers += 1;
                if let Some(client) = chain.client.filter(|_| settings.believes(head)) {
                    assert_eq!(*address, client, "{}", context());
                }
                assert!(settings.client.extract(head).unwrap().is_some());
            }
            Err(_) => refusals += 1,
        }
        longest = longest.max(timed(|| drop(settings.client.resolve(head))));
    }
    assert!(answers > count / 3 && refusals > count / 20, "{answers} answers, {refusals} refusals: one-sided");
    longest
}

#[test]
fn forged_chains_are_read_as_the_rules_say() {
    addresses(1, SHORT);
}

#[test]
fn keys_from_headers_stay_apart() {
    keys::stay_apart(2, SHORT);
}

#[test]
fn no_shape_of_header_takes_long() {
    // A sixteenth of a megabyte, without optimisation and on a busy machine; what is not linear would take seconds.
    let longest = size::longest(1 << 16);
    assert!(longest < Duration::from_millis(500), "{longest:?}");
}

#[test]
#[ignore = "ten million inputs: tests/run --long"]
fn long_ten_million_inputs_do_not_panic_and_none_takes_a_millisecond() {
    let start = Instant::now();
    // As many at a time as there are cores.
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = LONG * 9 / 10 / workers;
    let longest = std::thread::scope(|scope| {
        let run = |worker| scope.spawn(move || addresses(1_000 + worker, share));
        let threads: Vec<_> = (0..workers).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    keys::stay_apart(2_000, LONG / 10);
    let largest = size::longest(1 << 20);
    println!("{LONG} inputs in {:.0?}; longest parse {longest:.0?}, of a megabyte {largest:.0?}", start.elapsed());
    assert!(longest.max(largest) < Duration::from_millis(1));
}
