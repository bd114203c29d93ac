//! The page of `examples/server`, without a browser: what it costs and who may watch. `tests/browser/` looks at it.

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{net::TcpStream, thread, time::Duration};

use serde_json::Value;
use tokio::net::TcpSocket;
use tollgate::observe::{Event, Fingerprint, from_fn};
use tollgate::{Limiter, MemoryStore, Policy};

use crate::{history::History, running::Server, support::until};

/// As many as the server allows, and of one address.
const MOST_VIEWERS: usize = 16;
pub(crate) const MOST_OF_ONE: usize = 4;

/// A stream of events.
pub(crate) struct Viewer {
    pub(crate) status: u16,
    pub(crate) lines: BufReader<TcpStream>,
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

    pub(crate) fn over(mut stream: TcpStream) -> Self {
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

/// The server's answer for all clients, and its status: what a stricter limit would have refused.
fn stricter(server: &Server, policy: &str, limit: &str, client: &str) -> (u16, Value) {
    // More questions than the server answers within a second are refused.
    loop {
        let answer = server.fetch("GET", &format!("/page/stricter/{policy}/{limit}/{client}"));
        match answer.status {
            429 => thread::sleep(Duration::from_secs(1)),
            200 => return (200, serde_json::from_str(&answer.body).unwrap()),
            status => return (status, answer.body.into()),
        }
    }
}

pub(crate) fn visitor(server: &Server) -> String {
    let frame = Viewer::connect(server).frame();
    frame.split("\"visitor\":\"").nth(1).unwrap()[..22].to_owned()
}

/// Requests, those that were refused, those that the stricter limit refuses, and those of them that were admitted.
fn numbers(tally: &Value) -> [u64; 4] {
    ["requests", "refused", "stricter", "more"].map(|name| tally[name].as_u64().unwrap())
}

#[test]
fn the_last_hour_is_judged_by_a_stricter_limit_also_when_the_viewer_has_gone() {
    let server = Server::start(&["--limit", "30", "--window", "10m"]);
    let visitor = visitor(&server);
    for _ in 0..25 {
        server.fetch("GET", "/watch");
    }
    // Costs 10, of which 5 are left.
    assert_eq!(server.fetch("GET", "/search").status, 429);
    for _ in 0..10 {
        server.fetch("GET", "/watch");
    }
    let (_, as_now) = stricter(&server, "per-client", "30", &visitor);
    assert_eq!(numbers(&as_now["all"]), [36, 6, 6, 0], "the limit in force refuses what it has refused");
    let (_, answer) = stricter(&server, "per-client", "20", &visitor);
    assert_eq!(numbers(&answer["all"]), [36, 6, 16, 10]);
    assert_eq!(numbers(&answer["visitor"]), [36, 6, 16, 10]);
    assert_eq!(answer["marked"].as_array().unwrap().len(), 10);
    let minutes = answer["minutes"].as_array().unwrap().iter().map(|minute| {
        let parts = minute.as_array().unwrap();
        parts.iter().map(|part| part.as_u64().unwrap()).sum::<u64>()
    });
    assert_eq!(minutes.sum::<u64>(), 36);
    assert!(answer["since"].is_number(), "nothing is known of the time before the first look");
    let (_, answer) = stricter(&server, "per-client", "20", "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(numbers(&answer["client"]), [0; 4], "of a client that has sent nothing");
    assert_eq!(numbers(&answer["visitor"]), [36, 6, 16, 10]);
    // A cost above the limit can never pass.
    let (_, answer) = stricter(&server, "per-client", "5", &visitor);
    assert_eq!(numbers(&answer["all"]), [36, 6, 31, 25]);
    assert_eq!(server.fetch("GET", "/quota").body.matches("\"used\":30").count(), 1, "questions spend nothing");
}

#[test]
fn requests_are_kept_from_the_first_look_on() {
    let server = Server::start(&[]);
    for _ in 0..3 {
        server.fetch("GET", "/watch");
    }
    let visitor = visitor(&server);
    for _ in 0..2 {
        server.fetch("GET", "/watch");
    }
    let (_, answer) = stricter(&server, "per-client", "1", &visitor);
    assert_eq!(numbers(&answer["all"]), [2, 0, 1, 1]);
}

#[test]
fn a_stricter_limit_counts_as_its_window_slides() {
    let server = Server::start(&["--limit", "10", "--window", "3s"]);
    let visitor = visitor(&server);
    for _ in 0..2 {
        for _ in 0..10 {
            assert_eq!(server.fetch("GET", "/watch").status, 200);
        }
        until("the window is empty", || server.fetch("GET", "/quota").body.contains("\"used\":0"));
    }
    let (_, answer) = stricter(&server, "per-client", "4", &visitor);
    assert_eq!(numbers(&answer["all"]), [20, 0, 12, 12], "four of each window pass");
}

#[test]
fn a_question_about_a_limit_is_checked_and_bounded() {
    let server = Server::start(&["--limit", "30"]);
    let visitor = visitor(&server);
    assert_eq!(stricter(&server, "per-client", "15", &visitor).0, 200, "without a request");
    let looser = stricter(&server, "per-client", "31", &visitor);
    assert_eq!(looser, (400, "A stricter limit is a number from 1 to 30.\n".into()));
    for limit in ["0", "-1", "x", "99999999999999999999"] {
        assert_eq!(stricter(&server, "per-client", limit, &visitor).0, 400, "{limit}");
    }
    assert_eq!(stricter(&server, "per-client", "15", "somebody").0, 400);
    assert_eq!(stricter(&server, "tokens", "15", &visitor).0, 404, "nothing was judged");
    server.fetch("POST", "/generate");
    assert_eq!(stricter(&server, "tokens", "15", &visitor).0, 404, "costs of holds are not known");
    let statuses = (0..20).map(|_| server.fetch("GET", &format!("/page/stricter/per-client/15/{visitor}")).status);
    assert!(statuses.collect::<Vec<_>>().contains(&429), "many questions at once");
}

#[test]
fn a_window_that_is_longer_than_what_is_kept_is_not_judged() {
    for (window, status) in [("60m", 200), ("61m", 400), ("1d", 400)] {
        let server = Server::start(&["--limit", "30", "--window", window]);
        let (found, answer) = stricter(&server, "per-client", "15", &visitor(&server));
        assert_eq!(found, status, "{window}");
        assert!(found == 200 || answer == "A stricter limit is judged for windows of an hour at most.\n", "{answer}");
    }
}

#[test]
fn the_history_of_the_page_is_bounded_in_number_and_in_time() {
    const HOUR_US: u64 = 3_600_000_000;
    let history = Arc::new(Mutex::new((History::default(), 0)));
    let recorded = Arc::clone(&history);
    let record = from_fn(move |event: &Event<'_>| {
        let keys: Vec<_> = event.charges().map(|(key, ..)| Fingerprint::from(key)).collect();
        let (history, now_us) = &mut *recorded.lock().unwrap();
        history.record(*now_us, event, &keys);
    });
    let limiter = Limiter::new(MemoryStore::new()).with_observer(record);
    let policy = Policy::per_day("daily", 10).unwrap();
    let check_at = |now_us| {
        history.lock().unwrap().1 = now_us;
        let _ = limiter.try_check("alice", &policy, 1).unwrap();
    };
    let times = || {
        let judged = history.lock().unwrap().0.judged_by("daily");
        let times: Vec<_> = judged.requests.iter().map(|request| request.at_us).collect();
        (times, judged.complete_from_us)
    };
    for hours in 0..4 {
        check_at(1 + hours * HOUR_US);
    }
    assert_eq!(times(), (vec![1 + 2 * HOUR_US, 1 + 3 * HOUR_US], 0), "the last two hours, without the first instant");
    for number in 2..100_100 {
        check_at(number + 3 * HOUR_US);
    }
    let (times, complete_from) = times();
    assert_eq!(times.len(), 100_000);
    assert_eq!(times[0], complete_from + 1);
    assert_eq!(*times.last().unwrap(), 100_099 + 3 * HOUR_US);
}

#[test]
fn the_history_of_the_page_ends_when_nobody_has_looked_for_two_hours() {
    const TWO_HOURS_US: u64 = 7_200_000_000;
    let mut history = History::default();
    assert!(!history.has_ended(u64::MAX), "somebody looks");
    history.end_after(1);
    assert!(!history.has_ended(1 + TWO_HOURS_US));
    assert!(history.has_ended(2 + TWO_HOURS_US));
    history.keep();
    assert!(!history.has_ended(u64::MAX), "somebody looks again");
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
