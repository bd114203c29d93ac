//! A client that keeps many requests in flight, and counts what it is told.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Responses by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) handled: u32,
    /// Handled, without RateLimit fields: the failure policy let it pass.
    pub(crate) unjudged: u32,
    pub(crate) denied: u32,
    pub(crate) unavailable: u32,
}

impl Told {
    fn add(&mut self, other: Self) {
        self.handled += other.handled;
        self.unjudged += other.unjudged;
        self.denied += other.denied;
        self.unavailable += other.unavailable;
    }
}

/// Keeps so many requests in flight for a while, each on a connection of its own.
pub(crate) fn load(port: u16, in_flight: usize, time: Duration) -> Told {
    let until = Instant::now() + time;
    let mut sum = Told::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..in_flight).map(|_| scope.spawn(move || client(port, until))).collect();
        for client in clients {
            sum.add(client.join().unwrap());
        }
    });
    sum
}

fn client(port: u16, until: Instant) -> Told {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut writer, mut reader) = (stream.try_clone().unwrap(), BufReader::new(stream));
    let mut told = Told::default();
    while Instant::now() < until {
        writer.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (status, judged) = response(&mut reader);
        match status {
            200 => {
                told.handled += 1;
                told.unjudged += u32::from(!judged);
            }
            429 => told.denied += 1,
            503 => told.unavailable += 1,
            _ => panic!("status {status}"),
        }
        if status != 200 {
            // A client that is refused comes back a little later.
            thread::sleep(Duration::from_millis(1));
        }
    }
    told
}

/// The status, and whether there are RateLimit fields.
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
