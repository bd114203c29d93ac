//! What the page shows, and when.

use std::{net::TcpStream, thread, time::Duration};
use std::io::{Read, Write};

use crate::{browser::Browser, pictures, redis::Redis, running::Server};

/// Columns of the table of algorithms.
const MOST: usize = 2;
const REFUSED: usize = 6;

fn number(cells: &serde_json::Value, column: usize) -> u64 {
    cells[column].as_str().unwrap().parse().unwrap()
}

fn milliseconds(value: &serde_json::Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap() / 1_000.0)
}

/// Sends requests over one connection, as fast as the server answers.
fn flood(server: &Server, path: &str, count: usize) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n");
            for _ in 1..count {
                write!(writer, "{request}\r\n").unwrap();
            }
            write!(writer, "{request}connection: close\r\n\r\n").unwrap();
        });
        let mut answers = String::new();
        stream.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), count);
    });
}

/// A stream of events that has begun.
fn watch(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "GET /page/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn a_denial_appears_within_a_second_and_its_mark_ages_out_on_time() {
    let server = Server::start(&["--limit", "20", "--window", "3s"]);
    let browser = Browser::open(&server.address).await;
    assert_eq!(browser.run("return text('#store')").await, "memory");
    // Once of ten times, because a busy machine keeps a browser waiting. No mark may ever go too early.
    for attempt in 1.. {
        // Both times are those of the page, so that a slow driver does not count.
        browser
            .run(&format!(
                "const last = table('denials')[0][0];
                const isSeen = () => {{
                  const [at, , reason, , left] = table('denials')[0];
                  return at !== last && reason?.includes('limit of 20 is spent') && left !== 'ended' &&
                    lane('log')[{REFUSED}] !== '0';
                }};
                window.seenAfter = null;
                const click = () => {{ window.clickedAt = performance.now(); }};
                document.querySelector('#burst').addEventListener('click', click, {{ once: true, capture: true }});
                const see = (_, observer) => {{
                  if (!isSeen()) return;
                  window.seenAfter = performance.now() - window.clickedAt;
                  observer.disconnect();
                }};
                const all = {{ childList: true, characterData: true, subtree: true }};
                new MutationObserver(see).observe(document.querySelector('#denials'), all);"
            ))
            .await;
        browser.click("#burst").await;
        browser.until("a denial is shown", "return window.seenAfter !== null").await;
        let seen_after = milliseconds(&browser.run("return window.seenAfter").await);
        browser.until("all requests are answered", "return text('#sent') === '50 sent: 20 × 200, 30 × 429'").await;
        // By the clock of the events, and by what the table says.
        let age = browser
            .run_async(&format!(
                "const {{ model, now }} = await import('/page/model.js');
                const last = Math.max(...model.chosen().marks.map((mark) => mark.t));
                while (lane('log')[{REFUSED}] !== '0') await new Promise((done) => setTimeout(done, 10));
                return now() - last;"
            ))
            .await;
        let age = milliseconds(&age);
        println!("a denial was seen after {seen_after:?}, and aged out after {age:?}");
        assert!(age >= Duration::from_secs(3), "the mark is gone before it leaves the window: {age:?}");
        browser.until("the denial has ended", "return table('denials')[0][4] === 'ended'").await;
        if seen_after < Duration::from_secs(1) && age < Duration::from_secs(4) {
            break;
        }
        assert!(attempt < 10, "a denial is seen late, or its mark stays after it has left the window");
    }
    assert_eq!(browser.console().await, [""; 0], "no error and no violation of the security policy");
}

#[tokio::test]
async fn the_boundary_burst_exceeds_the_limit_beside_a_log_that_does_not() {
    let server = Server::start(&["--limit", "60", "--window", "10s"]);
    let browser = Browser::open(&server.address).await;
    pictures::take(&browser, "rest").await;
    browser.click("#boundary").await;
    browser.until("both bursts are answered", "return text('#sent').startsWith('Before')").await;
    browser.until("all of them are shown", "return Number(lane('log')[5]) + Number(lane('log')[6]) === 100").await;
    let [log, fixed] = [browser.run("return lane('log')").await, browser.run("return lane('fixed')").await];
    assert!(number(&log, MOST) <= 60, "{log}");
    assert_eq!(number(&fixed, MOST), 100, "{fixed}");
    assert_eq!(number(&log, REFUSED), 40, "{log}");
    // The bursts are then in the middle of the picture.
    browser.until("Retry-After counts down", "return parseFloat(lane('log')[7]) < 6").await;
    pictures::take_for_docs(&browser, "section:nth-of-type(2)", "page.png").await;
    pictures::take(&browser, "boundary").await;
    assert_eq!(browser.console().await, [""; 0]);
}

/// Whether one source has made a dozen decisions, which are seen in a picture.
fn decided_often(source: &str) -> String {
    format!("return table('sources').some((row) => row[0] === '{source}' && Number(row[1]) >= 12)")
}

#[tokio::test]
async fn an_outage_of_redis_and_its_end_are_seen() {
    let mut redis = Redis::start();
    let server = Server::start(&["--redis", &redis.url(), "--deadline", "5s", "--window", "20s", "--limit", "120"]);
    let browser = Browser::open(&server.address).await;
    browser.click("#steady").await;
    browser.until("the store decides", "return text('#source') === 'store' && text('#breaker') === 'closed'").await;
    browser.until("it has decided for a while", &decided_often("store")).await;
    redis.kill();
    browser.until("the failure policy decides", "return text('#source') === 'open'").await;
    browser.until("the breaker is open", "return text('#breaker') === 'open'").await;
    browser.click("[data-request='GET /search']").await;
    browser.until("a route that fails closed refuses", "return text('#denials').includes('fails closed')").await;
    // Long enough to be seen in the picture.
    browser.until("the failure policy has decided for a while", &decided_often("open")).await;
    pictures::take(&browser, "outage").await;
    redis.start_again();
    browser.until("the breaker is closed", "return text('#breaker') === 'closed'").await;
    browser.until("the store decides again", "return text('#source') === 'store'").await;
    assert_eq!(browser.console().await, [""; 0]);
}

#[tokio::test]
async fn open_holds_and_slots_are_shown_until_they_end() {
    let server = Server::start(&[]);
    let browser = Browser::open(&server.address).await;
    browser.click("[data-request^='POST /generate']").await;
    for _ in 0..3 {
        browser.click("[data-request^='GET /upload']").await;
    }
    browser
        .until("the holds are shown", "return table('holds').filter((row) => row[2]?.endsWith('held')).length === 4")
        .await;
    browser.until("the slots are shown", "return text('#holds').includes('3 of 3 slots')").await;
    browser.click("[data-request^='GET /upload']").await;
    browser.until("the fourth upload is refused", "return text('#denials').includes('all 3 slots are taken')").await;
    pictures::take(&browser, "holds").await;
    browser.until("all have ended", "return !text('#holds').includes('held')").await;
    assert_eq!(browser.run("return text('#holds').includes('0 of 3 slots')").await, true);
    assert_eq!(browser.console().await, [""; 0]);
}

#[tokio::test]
async fn a_viewer_connects_again_after_the_server_has_ended() {
    let mut server = Server::start(&[]);
    let browser = Browser::open(&server.address).await;
    server.kill();
    browser.until("the page says so", "return text('#connection') === 'connecting again'").await;
    let _again = Server::start(&["--listen", &server.address]);
    browser.until("events come again", "return text('#connection') === 'live'").await;
}

/// Keys of the keyboard.
const HOME: &str = "\u{e011}";
const RIGHT: &str = "\u{e014}";

#[tokio::test]
async fn a_slider_shows_what_a_stricter_limit_would_have_refused() {
    let server = Server::start(&["--limit", "20", "--window", "10m"]);
    let browser = Browser::open(&server.address).await;
    browser.click("#burst").await;
    browser.until("all requests are answered", "return text('#sent') === '50 sent: 20 × 200, 30 × 429'").await;
    assert_eq!(browser.run("return text('#tried')").await, "20 per 10 min, as now");
    assert_eq!(browser.run("return document.querySelector('#result').hidden").await, true, "no stricter limit is set");
    browser.press("#stricter", &[HOME]).await;
    browser.until("a limit of 1 is tried", "return table('hour')[0]?.join() === 'all clients,50,30,49,19'").await;
    browser.press("#stricter", &[RIGHT; 4]).await;
    browser.until("a limit of 5 is tried", "return table('hour')[0]?.join() === 'all clients,50,30,45,15'").await;
    assert_eq!(browser.run("return table('hour')[1].join()").await, "you,50,30,45,15");
    let said = browser.run("return text('#would')").await;
    let (start, rest) = said.as_str().unwrap().split_once(", since ").unwrap();
    assert_eq!(start, "5 per 10 min instead of 20 per 10 min would have refused");
    let numbers = "of all clients: 45 of 50 requests, 15 of them admitted in fact; \
                   of you: 45 of 50 requests, 15 of them admitted in fact.";
    assert_eq!(rest.split_once(": ").unwrap().1, numbers);
    assert_eq!(browser.run("return text('#said')").await, said, "for screen readers");
    assert_eq!(browser.run("return document.querySelector('#stricter').ariaValueText").await, "5 per 10 min");
    // The last 15 of those that were admitted.
    let marked = "const { model } = await import('/page/model.js');
        const { stricter } = await import('/page/stricter.js');
        return model.chosen().marks.map((mark) => [mark.allowed.own, stricter.marked.has(mark.t)]);";
    let marked = browser.run_async(marked).await;
    let marked: Vec<[bool; 2]> = serde_json::from_value(marked).unwrap();
    let admitted: Vec<_> = marked.iter().filter(|[allowed, _]| *allowed).collect();
    assert_eq!(admitted.len(), 20);
    assert_eq!(admitted.iter().map(|[_, is_marked]| u64::from(*is_marked)).sum::<u64>(), 15);
    assert!(admitted[5..].iter().all(|[_, is_marked]| *is_marked), "{marked:?}");
    assert!(marked.iter().all(|[allowed, is_marked]| *allowed || !is_marked), "{marked:?}");
    pictures::take(&browser, "stricter").await;
    // With the next question, the requests that came since.
    server.fetch("GET", "/search");
    browser.until("the numbers are asked for anew", "return table('hour')[0][1] === '51'").await;
    assert_eq!(browser.console().await, [""; 0]);
}

#[tokio::test]
async fn a_page_that_is_paused_keeps_the_newest_events() {
    let server = Server::start(&["--limit", "100000"]);
    let browser = Browser::open(&server.address).await;
    browser.click("#pause").await;
    let waiting = "return text('#connection').startsWith('paused, the newest ')";
    // The server leaves events out for a page that is slow to read them, so one flood may be too few.
    for _ in 0..20 {
        flood(&server, "/watch", 3_000);
        if browser.run(waiting).await == true {
            break;
        }
    }
    browser.until("events were forgotten", waiting).await;
    let count = "return Number(text('#connection').match(/newest (\\d+) events/)[1])";
    let count = browser.run(count).await.as_u64().unwrap();
    assert!((1..=2_000).contains(&count), "{count} events wait");
    assert_eq!(browser.run("return lane('log')[5]").await, "0", "nothing is shown yet");
    browser.click("#pause").await;
    browser.until("the newest are shown", "return Number(lane('log')[5]) > 0").await;
    let shown: u64 = browser.run("return Number(lane('log')[5])").await.as_u64().unwrap();
    assert!(shown <= 2_000, "{shown}");
    browser.until("a note says so", "return text('#notes').includes('they were too many')").await;
    browser.until("events come again", "return text('#connection') === 'live'").await;
}

#[tokio::test]
async fn a_fifth_page_of_one_address_says_why_it_gets_no_events() {
    let server = Server::start(&[]);
    let four: Vec<_> = (0..4).map(|_| watch(&server)).collect();
    let browser = Browser::start().await;
    browser.go_to(&server.address).await;
    let text = "Four pages of your address watch already. Close one, or try again later.";
    browser.until("the page says why", &format!("return text('#connection') === '{text}'")).await;
    drop(four);
    browser.until("events come", "return text('#connection') === 'live'").await;
}
