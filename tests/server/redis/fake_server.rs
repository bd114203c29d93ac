//! A server with scripted replies and delays.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::redis::{self, Value};

/// The delay of a reply and its bytes.
pub(crate) type Reply = (Duration, Vec<u8>);

/// Starts a server that replies to each command with the result of `reply` for the command's name; returns the port.
/// The server runs until the process ends.
pub(crate) fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reply = Arc::new(reply);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let reply = Arc::clone(&reply);
            thread::spawn(move || serve(stream, &*reply));
        }
    });
    port
}

fn serve(stream: TcpStream, reply: &dyn Fn(&str) -> Reply) {
    stream.set_nodelay(true).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let (replies, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, reply) in due {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = writer.write_all(&reply);
        }
    });
    let (mut reader, mut parser) = (BufReader::new(stream), redis::Parser::new());
    while let Ok(Value::Array(command)) = parser.parse_value(&mut reader) {
        let Some(Value::BulkString(name)) = command.first() else { return };
        let (delay, reply) = reply(&String::from_utf8_lossy(name).to_ascii_uppercase());
        let _ = replies.send((Instant::now() + delay, reply));
    }
}
