//! Upstreams that answer in their own way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::{sync::mpsc, thread};

use serde_json::Value;

pub(super) const EVENTS: &str = "text/event-stream";

/// A server on a free port. It runs until the tests end.
pub(super) struct Upstream {
    pub(super) url: String,
    /// The bodies that it has been sent.
    pub(super) requests: mpsc::Receiver<Value>,
}

impl Upstream {
    /// Answers each request with `answer`, and closes the connection.
    pub(super) fn start(answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // Without a receiver, the test has ended.
                let _ = sender.send(body_of(&mut stream));
                // A client may hang up.
                let _ = answer(&mut stream);
            }
        });
        Self { url, requests }
    }

    /// Answers each request with these bytes.
    pub(super) fn answering(content_type: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::start(move |stream| {
            begin(stream, content_type, None)?;
            stream.write_all(body.as_bytes())
        })
    }
}

/// Writes the head of an answer. Without a length, its body ends with the connection.
pub(super) fn begin(stream: &mut TcpStream, content_type: &str, length: Option<usize>) -> io::Result<()> {
    let length = length.map(|length| format!("content-length: {length}\r\n")).unwrap_or_default();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n{length}\r\n")
}

fn body_of(stream: &mut TcpStream) -> Value {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    // The request line is no field.
    stream.read_line(&mut String::new()).unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}
