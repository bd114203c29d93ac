//! Memory of one key in Redis, for each number of requests in its window.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

use redis::{Connection, Script};
use serde_json::json;
use tollgate::{Algorithm, Limiter, PeerIp, Policy, RedisStore, clock::Clock};

use crate::svg::{AMBER, Axis, BLUE, DARK, GREEN, Line, Panel, RED, Stroke, panels};
use crate::{Result, args::Args, report::Report, scripts, server::Server};

/// Numbers of requests in the window.
const FILLS: [u64; 12] = [1, 3, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];
/// Long enough that no key expires: TTLs follow the server's clock, while the benchmark sets the store's clock.
const WINDOW: Duration = Duration::from_micros(WINDOW_US);
const WINDOW_US: u64 = 3_600_000_000;
/// 2026-01-01 in microseconds since the Unix epoch, a multiple of the window.
const START_US: u64 = 1_767_225_600_000_000;

/// Clones share the time.
#[derive(Clone, Debug, Default)]
struct SetClock(Arc<AtomicU64>);

impl Clock for SetClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn run(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connection = &mut server.endpoint().blocking()?;
    let fills = args.some_of(&FILLS);
    let largest = fills[fills.len() - 1];
    let policy = Policy::new("fill", largest, WINDOW)?;
    let mut lines = Vec::new();
    // The last two lines are one above the other.
    let mut add = |label: &str, colour, bytes: Vec<u64>| {
        for (fill, bytes) in fills.iter().zip(&bytes) {
            let per_request = *bytes as f64 / *fill as f64;
            println!("{label:<34} {fill:>6} in the window {bytes:>9} B {per_request:>8.1} B per request");
            report.figure(json!({"label": label, "fill": fill, "bytes": bytes}));
        }
        let points = fills.iter().zip(bytes).map(|(fill, bytes)| (*fill as f64, bytes as f64)).collect();
        let stroke = if colour == DARK { Stroke::Dashed } else { Stroke::Solid };
        lines.push(Line { label: label.to_owned(), colour, stroke, is_marked: false, points });
    };
    add("sorted set", RED, sorted_set(connection, fills)?);
    for (label, colour, policy) in [
        ("log", GREEN, policy.clone()),
        ("log, resolution 1/100", BLUE, policy.clone().with_resolution(WINDOW / 100)),
        ("counter", AMBER, policy.clone().with_algorithm(Algorithm::SlidingWindowCounter)),
        ("token bucket", DARK, policy.with_algorithm(Algorithm::TokenBucket)),
    ] {
        add(label, colour, runtime.block_on(tollgate(server, connection, &policy, fills))?);
    }
    if let Some(path) = &args.svg {
        let subtitle = format!("Redis {}, MEMORY USAGE of the key, requests spread over the window", server.version()?);
        std::fs::write(path, panels("Bytes of one key while its window fills", &subtitle, &[panel(lines)]))?;
    }
    Ok(())
}

/// The bytes of a key of a [`RedisStore`] with each fill.
async fn tollgate(server: &Server, connection: &mut Connection, policy: &Policy, fills: &[u64]) -> Result<Vec<u64>> {
    let clock = SetClock::default();
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).clock(clock.clone());
    let limiter = Limiter::new(store.open(server.endpoint().url())?);
    let key = PeerIp::new().key_of([203, 0, 113, 7].into());
    let mut bytes = Vec::new();
    for &fill in fills {
        redis::cmd("FLUSHALL").exec(connection)?;
        for request in 0..fill {
            clock.0.store(time_of(request, fill), Ordering::Relaxed);
            if !limiter.check(&key, policy, 1).await?.is_allowed() {
                return Err(format!("request {request} was denied while the window was filled").into());
            }
        }
        bytes.push(usage(connection)?);
    }
    Ok(bytes)
}

/// The bytes of a sorted set with a member for each request: the script that most services write.
fn sorted_set(connection: &mut Connection, fills: &[u64]) -> Result<Vec<u64>> {
    let script = Script::new(scripts::SORTED_SET_STEP_LOG);
    script.prepare_invoke().load(connection)?;
    let quota = scripts::Quota { limit: u64::from(u32::MAX), window_us: WINDOW_US };
    let mut bytes = Vec::new();
    for &fill in fills {
        redis::cmd("FLUSHALL").exec(connection)?;
        for request in 0..fill {
            let mut command = redis::cmd("EVALSHA");
            command.arg(script.get_hash());
            scripts::plain_args(&mut command, "limit:203.0.113.7", Some(time_of(request, fill)), quota, 1);
            command.exec(connection)?;
        }
        bytes.push(usage(connection)?);
    }
    Ok(bytes)
}

/// Requests are spread evenly, so that all of them are in one window.
fn time_of(request: u64, fill: u64) -> u64 {
    START_US + WINDOW_US / fill * request
}

/// The bytes of all keys.
fn usage(connection: &mut Connection) -> Result<u64> {
    let mut bytes = 0;
    for key in redis::cmd("KEYS").arg("*").query::<Vec<String>>(connection)? {
        bytes += redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query::<u64>(connection)?;
    }
    Ok(bytes)
}

fn panel(lines: Vec<Line>) -> Panel {
    let ticks = |ticks: &[(f64, &str)]| ticks.iter().map(|(at, label)| (*at, (*label).to_owned())).collect();
    Panel {
        title: String::new(),
        x: Axis {
            title: "requests in the window",
            ticks: ticks(&[(1.0, "1"), (10.0, "10"), (100.0, "100"), (1e3, "1 000"), (1e4, "10 000")]),
            is_logarithmic: true,
        },
        y: Axis {
            title: "bytes of the key",
            ticks: ticks(&[
                (10.0, "10 B"),
                (100.0, "100 B"),
                (1e3, "1 kB"),
                (1e4, "10 kB"),
                (1e5, "100 kB"),
                (1e6, "1 MB"),
                (1e7, "10 MB"),
            ]),
            is_logarithmic: true,
        },
        lines,
        background: Vec::new(),
        strip: Vec::new(),
    }
}
