//! A network link with latency: bytes arrive half a round trip later, in both directions.
//!
//! The link runs on threads, because an executor's timers, with steps of a millisecond, are too coarse for a round trip
//! of a millisecond.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{sync::mpsc, thread};

/// Forwards connections until the test's process ends.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    port: u16,
}

impl Link {
    /// Links to a local port. Connecting is immediate; data takes `round_trip` there and back.
    pub fn to(target: u16, round_trip: Duration) -> Self {
        Self::start(target, round_trip, Duration::ZERO)
    }

    /// Like [`to`](Self::to), but connecting also takes a round trip, as over a real network.
    pub fn far_from(target: u16, round_trip: Duration) -> Self {
        Self::start(target, round_trip, round_trip)
    }

    /// `connect` is the simulated connect time. The local connect is instant, so the first bytes are held back instead.
    fn start(target: u16, round_trip: Duration, connect: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay = round_trip / 2;
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap());
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let connected = Instant::now() + connect;
                forward(client.try_clone().unwrap(), server.try_clone().unwrap(), connected, delay);
                forward(server, client, connected, delay);
            }
        });
        Self { port }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

/// Copies bytes from one stream to the other. Bytes arrive `delay` after they were sent, and none arrive before
/// `connected` plus `delay`.
fn forward(mut from: TcpStream, mut to: TcpStream, connected: Instant, delay: Duration) {
    let (sender, sent) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send((connected.max(Instant::now()) + delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in sent {
            // The latency of the network.
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
