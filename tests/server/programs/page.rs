//! The page of `examples/server`, without a browser: what it costs and who may watch. `tests/browser/` looks at it.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;
use tokio::net::TcpSocket;

use crate::{running::Server, support::until};

/// As many as the server allows, and of one address.
const MOST_VIEWERS: usize = 16;
const MOST_OF_ONE: usize = 4;

/// A stream of events.
struct Viewer {
    status: u16,
    lines: BufReader<TcpStream>,
}

impl Viewer {
    fn connect(server: &Server) -> Self {
        Self::over(TcpStream::connect(&server.address).unwrap())
    }

    /// A viewer at 127.0.0.`host` that reads no more than its first line, and whose system keeps little for it.
    async fn that_does_not_read(server: &Server, host: usize) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.{host}:0").parse().unwrap()).unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = socket.connect(server.address.parse().unwrap()).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        Self::over(stream)
    }

    fn over(mut stream: TcpStream) -> Self {
        write!(stream, "GET /page/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut lines = BufReader::with_capacity(256, stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        Self { status: first.split(' ').nth(1).unwrap().parse().unwrap(), lines }
    }

    /// The next frame of events.
    fn frame(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream has ended");
        }
        line
    }
}

#[test]
fn the_page_spends_nothing_loads_nothing_from_elsewhere_and_can_be_left_out() {
    let server = Server::start(&[]);
    let page = server.fetch("GET", "/");
    assert_eq!(page.status, 200);
    let policy = &page.fields["content-security-policy"];
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
    let mut files = 0;
    for link in page.body.split('"').filter(|text| text.starts_with("/page/")) {
        assert_eq!(server.fetch("GET", link).status, 200, "{link}");
        files += 1;
    }
    assert_eq!(files, 4, "scripts and styles of the page");
    assert!(!page.body.contains("//"), "no address of another host");
    assert!(server.fetch("GET", "/quota").body.contains("\"used\":0"));

    let without = Server::start(&["--no-page"]);
    assert_eq!(without.fetch("GET", "/").status, 404);
    assert_eq!(without.fetch("GET", "/page/events").status, 404);
}

#[test]
fn a_viewer_sees_the_requests_from_then_on_because_nothing_is_recorded_before() {
    let server = Server::start(&[]);
    for _ in 0..5 {
        server.fetch("GET", "/watch");
    }
    let mut viewer = Viewer::connect(&server);
    assert!(viewer.frame().contains("\"visitor\""));
    assert!(viewer.frame().contains("\"events\":[]"), "a second without requests");
    server.fetch("POST", "/login");
    let frame = viewer.frame();
    assert_eq!(frame.matches("\"kind\":\"decision\"").count(), 1, "{frame}");
    assert!(frame.contains("\"route\":\"/login\""), "{frame}");
    drop(viewer);
    // The server notices a viewer that has gone away with the next frame.
    thread::sleep(Duration::from_millis(1_500));
    server.fetch("GET", "/watch");
    let mut next = Viewer::connect(&server);
    assert!(next.frame().contains("\"visitor\""));
    assert!(next.frame().contains("\"events\":[]"), "nothing is kept from the time between");
}

#[test]
fn a_fifth_viewer_of_an_address_is_told_so_and_may_come_when_another_has_gone() {
    let server = Server::start(&[]);
    let mut viewers: Vec<_> = (0..MOST_OF_ONE).map(|_| Viewer::connect(&server)).collect();
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    assert_eq!(Viewer::connect(&server).status, 503);
    let refused = server.fetch("GET", "/page/events");
    assert_eq!((refused.status, refused.fields["retry-after"].as_str()), (503, "5"));
    assert_eq!(refused.body, "Four pages of your address watch already. Close one, or try again later.\n");
    viewers.pop();
    until("the place is free", || Viewer::connect(&server).status == 200);
}

// The other systems have only one address of loopback.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn viewers_are_bounded_and_those_that_do_not_read_give_their_places_to_others() {
    // Requests that are admitted fill the frames.
    let server = Server::start(&["--limit", "1000000"]);
    let mut viewers = Vec::new();
    for number in 0..MOST_VIEWERS {
        viewers.push(Viewer::that_does_not_read(&server, 2 + number / MOST_OF_ONE).await);
    }
    assert!(viewers.iter().all(|viewer| viewer.status == 200));
    let refused = server.fetch("GET", "/page/events");
    assert_eq!((refused.status, refused.fields["retry-after"].as_str()), (503, "5"));
    assert!(refused.body.starts_with("As many viewers as allowed"), "{}", refused.body);
    assert_eq!(server.fetch("GET", "/watch").status, 200, "requests go on");

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    server.fetch("GET", "/watch");
                }
            });
        }
        until("a viewer that does not read has lost its place", || Viewer::connect(&server).status == 200);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_is_refused_again_and_again_is_one_event_of_a_frame() {
    let server = Server::start(&["--limit", "10"]);
    let mut viewer = Viewer::connect(&server);
    viewer.frame();
    for _ in 0..50 {
        server.fetch("GET", "/watch");
    }
    let (mut events, mut requests) = (0, 0);
    while requests < 50 {
        let frame: Value = serde_json::from_str(viewer.frame().strip_prefix("data: ").unwrap()).unwrap();
        let all = frame["events"].as_array().unwrap();
        for event in all.iter().filter(|event| event["kind"] == "decision") {
            assert!(event["repeats"].is_null() || event["allowed"] == false, "{event}");
            assert!(event["repeats"].is_null() || event["until"].as_f64() > event["t"].as_f64(), "{event}");
            events += 1;
            requests += 1 + event["repeats"].as_u64().unwrap_or(0);
        }
    }
    assert_eq!(requests, 50);
    assert!(events < 50, "{events} events");
}

#[test]
fn a_server_ends_although_somebody_watches() {
    let mut server = Server::start(&[]);
    let mut viewer = Viewer::connect(&server);
    viewer.frame();
    server.terminate();
    until("the server has ended", || server.has_ended());
    assert!(server.wait().success());
}
