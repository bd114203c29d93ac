//! Clients of the page that do not read what they have asked for, or that go away without it. They come from several
//! addresses of loopback, which other systems than Linux do not have.
#![cfg(target_os = "linux")]

use std::io::{self, BufRead, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, net::TcpStream, thread};

use tokio::{net::TcpSocket, runtime::Builder};

use crate::page::{MOST_OF_ONE, Viewer, visitor};
use crate::{running::Server, support::until};

/// A connection from 127.0.0.`host`.
fn connect(server: &Server, host: usize) -> TcpStream {
    let connected = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.{host}:0").parse().unwrap()).unwrap();
        // What waits is in the server, and not in this system.
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.connect(server.address.parse().unwrap()).await.unwrap().into_std().unwrap()
    };
    let stream = Builder::new_current_thread().enable_io().build().unwrap().block_on(connected);
    stream.set_nonblocking(false).unwrap();
    stream
}

/// A viewer that has read nothing, and has lost its place while requests filled the frames of all viewers. Also when it
/// had lost it at the latest, in milliseconds since the epoch.
fn viewer_without_a_place(server: &Server) -> (Viewer, f64) {
    let slow = Viewer::over(connect(server, 2));
    for _ in 1..MOST_OF_ONE {
        let mut lines = Viewer::over(connect(server, 2)).lines.into_inner();
        thread::spawn(move || drop(io::copy(&mut lines, &mut io::sink())));
    }
    let is_lost = || Viewer::over(connect(server, 2)).status == 200;
    assert!(!is_lost());
    let (is_over, start) = (AtomicBool::new(false), Instant::now());
    let lost = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    server.fetch("GET", "/watch");
                }
            });
        }
        while !is_lost() && start.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        SystemTime::now()
    });
    assert!(start.elapsed() < Duration::from_secs(60), "a viewer that reads nothing has a place");
    (slow, lost.duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1_000.0)
}

#[test]
fn frames_that_wait_for_a_viewer_without_a_place_are_dropped() {
    let server = Server::start(&["--limit", "1000000"]);
    let (mut slow, lost) = viewer_without_a_place(&server);
    // Three seconds of frames waited when it lost its place.
    let (mut line, mut newest) = (String::new(), 0.0);
    while line.trim_end() != "0" {
        line.clear();
        assert!(slow.lines.read_line(&mut line).unwrap() > 0, "the response has no end");
        if let Some((_, now)) = line.split_once("data: {\"now\":") {
            newest = now.split(',').next().unwrap().parse().unwrap();
        }
    }
    assert!(newest > 0.0 && lost - newest > 1_500.0, "the newest frame is {} ms old", lost - newest);
}

#[test]
fn a_server_ends_although_a_viewer_does_not_read() {
    let mut server = Server::start(&["--limit", "1000000"]);
    let slow = viewer_without_a_place(&server);
    server.terminate();
    until("the server has ended", || server.has_ended());
    assert!(server.wait().success());
    drop(slow);
}

#[test]
fn questions_of_clients_that_have_gone_away_are_answered_one_by_one() {
    const REQUESTS: usize = 10_000;
    let server = Server::start(&["--limit", "1000000"]);
    let visitor = visitor(&server);
    let mut requests = TcpStream::connect(&server.address).unwrap();
    let mut responses = requests.try_clone().unwrap();
    let send = thread::spawn(move || {
        for number in 1..=REQUESTS {
            let last = if number == REQUESTS { "connection: close\r\n" } else { "" };
            write!(requests, "GET /watch HTTP/1.1\r\nhost: localhost\r\n{last}\r\n").unwrap();
        }
    });
    let mut text = String::new();
    responses.read_to_string(&mut text).unwrap();
    send.join().unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), REQUESTS);

    let threads = || fs::read_dir(format!("/proc/{}/task", server.id())).unwrap().count();
    let before = threads();
    let mut most = before;
    // Each address may ask five questions a second.
    for host in 2..42 {
        for _ in 0..5 {
            let mut stream = connect(&server, host);
            let path = format!("/page/stricter/per-client/1/{visitor}");
            write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            // Until the server has begun with it.
            thread::sleep(Duration::from_millis(4));
        }
        most = most.max(threads());
    }
    assert!(most <= before + 4, "{most} threads instead of {before}");
    assert_eq!(server.fetch("GET", "/watch").status, 200);
}
