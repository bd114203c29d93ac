//! Client addresses and keys from generated and damaged headers: no panic, no slow input, no client with the address or
//! key of another one.
//!
//! `tests/run --long` runs ten million inputs in release mode.

mod damage;
mod grammar;
mod keys;
mod oracle;
mod size;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderName, HeaderValue, Request, request::Parts};
use tollgate::KeyExtractor;

use self::{grammar::Chain, oracle::Settings};
use crate::support::random::Random;

/// The number of inputs of a short test.
const SHORT: u64 = 30_000;
/// The number of inputs of the long test.
const LONG: u64 = 10_000_000;

/// The parts of a request from `peer`, without headers.
fn parts(peer: Option<IpAddr>) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    if let Some(peer) = peer {
        parts.extensions.insert(ConnectInfo(SocketAddr::new(peer, 4711)));
    }
    parts
}

/// Appends a header line without control characters, which HTTP servers reject.
fn append(headers: &mut HeaderMap, name: &HeaderName, line: &[u8]) {
    let line: Vec<u8> = line.iter().copied().filter(|&byte| byte == b'\t' || (byte >= 32 && byte != 127)).collect();
    headers.append(name, HeaderValue::from_bytes(&line).unwrap());
}

/// The duration of `run`. A long run is repeated, and the shortest counts, because other processes may interrupt it.
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

/// Compares the extractor with the oracle, and with the true client where the chain has one.
fn assert_addresses(seed: u64, count: u64) -> Duration {
    let mut random = Random(seed);
    let all = Settings::all();
    let mut heads = [parts(None), parts(Some(grammar::PROXY)), parts(Some(grammar::OUTSIDE))];
    let mut longest = Duration::ZERO;
    let (mut addresses, mut errors) = (0_u64, 0_u64);
    for number in 0..count {
        let settings = &all[random.index(all.len())];
        let chain = Chain::new(&mut random, settings);
        let head = random.weighted(&[1, 12, 1]);
        let head = &mut heads[head];
        head.headers.clear();
        for line in &chain.lines {
            append(&mut head.headers, &settings.header, line);
        }
        // A header that the extractor must ignore.
        let other = settings.another_header(&mut random);
        append(&mut head.headers, &other, b"198.51.100.77");

        let resolved = settings.client.resolve(head);
        let context = || format!("seed {seed}, input {number}, {settings:?}, {:?}", head.headers);
        assert_eq!(resolved.clone().map_err(|error| oracle::name(&error)), settings.expected(head), "{}", context());
        match &resolved {
            Ok(address) => {
                addresses += 1;
                if let Some(client) = chain.client.filter(|_| settings.trusts_header(head)) {
                    assert_eq!(*address, client, "{}", context());
                }
                assert!(settings.client.extract(head).unwrap().is_some());
            }
            Err(_) => errors += 1,
        }
        longest = longest.max(timed(|| drop(settings.client.resolve(head))));
    }
    assert!(addresses > count / 3 && errors > count / 20, "one-sided: {addresses} addresses, {errors} errors");
    longest
}

#[test]
fn forged_chains_are_read_as_the_oracle_reads_them() {
    assert_addresses(1, SHORT);
}

#[test]
fn keys_from_headers_are_injective() {
    keys::assert_injective(2, SHORT);
}

#[test]
fn no_shape_of_header_takes_long() {
    // 64 KiB, without optimisation and on a busy machine. Quadratic time would take seconds.
    let longest = size::longest(1 << 16);
    assert!(longest < Duration::from_millis(500), "{longest:?}");
}

#[test]
#[ignore = "ten million inputs: tests/run --long"]
fn long_ten_million_inputs_do_not_panic_and_none_takes_a_millisecond() {
    let start = Instant::now();
    // One worker for each core.
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = LONG * 9 / 10 / workers;
    let longest = std::thread::scope(|scope| {
        let run = |worker| scope.spawn(move || assert_addresses(1_000 + worker, share));
        let threads: Vec<_> = (0..workers).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    keys::assert_injective(2_000, LONG / 10);
    let largest = size::longest(1 << 20);
    println!("{LONG} inputs in {:.0?}; longest parse {longest:.0?}, of a megabyte {largest:.0?}", start.elapsed());
    assert!(longest.max(largest) < Duration::from_millis(1));
}
