//! A client that keeps many requests in flight and counts the responses.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};
use std::{net::TcpStream, thread};

/// Responses by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Responses {
    pub(crate) handled: u32,
    /// Handled without RateLimit fields: admitted by the failure policy.
    pub(crate) unjudged: u32,
    pub(crate) denied: u32,
    pub(crate) unavailable: u32,
}

impl Responses {
    fn add(&mut self, other: Self) {
        self.handled += other.handled;
        self.unjudged += other.unjudged;
        self.denied += other.denied;
        self.unavailable += other.unavailable;
    }
}

/// Keeps `in_flight` requests in flight for the given time, each on its own connection.
pub(crate) fn load(port: u16, in_flight: usize, time: Duration) -> Responses {
    let until = Instant::now() + time;
    let mut sum = Responses::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..in_flight).map(|_| scope.spawn(move || client(port, until))).collect();
        for client in clients {
            sum.add(client.join().unwrap());
        }
    });
    sum
}

fn client(port: u16, until: Instant) -> Responses {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::new(stream));
    let mut responses = Responses::default();
    while Instant::now() < until {
        writer.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (status, judged) = response(&mut reader);
        match status {
            200 => {
                responses.handled += 1;
                responses.unjudged += u32::from(!judged);
            }
            429 => responses.denied += 1,
            503 => responses.unavailable += 1,
            _ => panic!("status {status}"),
        }
        if status != 200 {
            // A refused client pauses briefly.
            thread::sleep(Duration::from_millis(1));
        }
    }
    responses
}

/// Reads a response; returns the status and whether it has RateLimit fields.
fn response(reader: &mut impl BufRead) -> (u16, bool) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let (mut length, mut judged) = (0, false);
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name {
            "content-length" => length = value.parse().unwrap(),
            "ratelimit" => judged = true,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    (status, judged)
}
