//! A request whose answer is read piece by piece.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Sends a request with an API key. Dropping the connection hangs up.
pub(crate) fn send(address: &str, method: &str, path: &str, key: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len(),
    )
    .unwrap();
    stream
}

/// A response whose head has been read. Dropping it hangs up.
pub(crate) struct Answer {
    pub(crate) status: u16,
    stream: BufReader<TcpStream>,
}

impl Answer {
    /// Sends a request with an API key, and reads the head of the response.
    pub(crate) fn to(address: &str, method: &str, path: &str, key: &str, body: &str) -> Self {
        let mut stream = BufReader::new(send(address, method, path, key, body));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, stream }
    }

    /// Reads up to the next line with `text`.
    pub(crate) fn reads(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stream.read_line(&mut line).unwrap(), 0, "{text:?} is not in the answer");
        }
    }

    /// Reads to the end, also to an early one.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        self.stream.read_to_string(&mut text).unwrap();
        text
    }
}
