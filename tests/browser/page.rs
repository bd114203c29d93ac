//! What the page shows, and when.

use std::time::Duration;

use crate::{browser::Browser, pictures, redis::Redis, running::Server};

/// Columns of the table of algorithms.
const MOST: usize = 2;
const REFUSED: usize = 6;

fn number(cells: &serde_json::Value, column: usize) -> u64 {
    cells[column].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_denial_appears_within_a_second_and_its_mark_ages_out_on_time() {
    let server = Server::start(&["--limit", "20", "--window", "3s"]);
    let browser = Browser::open(&server.address).await;
    assert_eq!(browser.run("return text('#store')").await, "memory");
    let mut times = Vec::new();
    for _ in 0..3 {
        browser.click("#burst").await;
        // The newest denial is in the first row.
        let seen = format!(
            "const [, , reason, , left] = table('denials')[0];
            return lane('log')[{REFUSED}] !== '0' && !!reason?.includes('limit of 20 is spent') && left !== 'ended'"
        );
        times.push(browser.until("a denial is shown", &seen).await);
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
        let age = Duration::from_secs_f64(age.as_f64().unwrap() / 1_000.0);
        println!("a denial was seen after {:?}, and aged out after {age:?}", times.last().unwrap());
        assert!(age >= Duration::from_secs(3), "the mark is gone before it leaves the window: {age:?}");
        assert!(age < Duration::from_secs(4), "the mark stays after it has left the window: {age:?}");
        browser.until("the denial has ended", "return table('denials')[0][4] === 'ended'").await;
    }
    // One of three, because a busy machine may keep a browser waiting.
    assert!(times.iter().any(|time| *time < Duration::from_secs(1)), "{times:?}");
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

#[tokio::test]
async fn an_outage_of_redis_and_its_end_are_seen() {
    let mut redis = Redis::start();
    let server = Server::start(&["--redis", &redis.url(), "--deadline", "5s", "--window", "20s", "--limit", "1000"]);
    let browser = Browser::open(&server.address).await;
    browser.click("#steady").await;
    browser.until("the store decides", "return text('#source') === 'store' && text('#breaker') === 'closed'").await;
    redis.kill();
    browser.until("the failure policy decides", "return text('#source') === 'open'").await;
    browser.until("the breaker is open", "return text('#breaker') === 'open'").await;
    browser.click("[data-request='GET /search']").await;
    browser.until("a route that fails closed refuses", "return text('#denials').includes('fails closed')").await;
    // Long enough to be seen in the picture.
    let decided = "return table('sources').some((row) => row[0] === 'open' && Number(row[1]) >= 12)";
    browser.until("the failure policy has decided for a while", decided).await;
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
        .until("the holds are shown", "return table('holds').filter((row) => row[2].endsWith('held')).length === 4")
        .await;
    browser.until("the slots are shown", "return text('#holds').includes('3 of 3 slots')").await;
    browser.click("[data-request^='GET /upload']").await;
    browser.until("the fourth upload is refused", "return text('#denials').includes('GET /upload')").await;
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
