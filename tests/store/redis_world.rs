//! `RedisStore` in a simulated world: servers reply by a script, and time passes when all wait.

use std::cell::{Cell, RefCell};
use std::{io, rc::Rc, time::Duration};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::time::{sleep, timeout};
use tokio::{runtime::Builder, task::JoinSet};
use tollgate::world::{Dialled, Stream, World};
use tollgate::{
    Check, ConfigError, ErrorKind, GlobalKey, Limiter, Policy, RateLimitLayer, RedisStore, failure::BreakerSettings,
    store::RedisStoreBuilder,
};

use crate::support::{app::app, http::get};

/// What the server at an address replies to a command, and after how many milliseconds. An empty text is no reply.
/// `None`: the usual reply. The reply to `DIAL` is the error of a wrong certificate.
type Script = Box<dyn Fn(&str, &str) -> Option<(u64, String)>>;

/// In the place of a reply, this ends the connection.
pub(super) const HANG_UP: &str = "hang up";

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
    /// The number of counts in the call that is answered.
    static COUNTS: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn run(script: impl Fn(&str, &str) -> Option<(u64, String)> + 'static, test: impl Future<Output = ()>) {
    let _world = World::enter(1_767_225_600_000_000, 1).with_dial(dial);
    SCRIPT.set(Some(Box::new(script)));
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

fn dial(host: &str, port: u16) -> Dialled {
    let address = format!("{host}:{port}");
    Box::pin(async move {
        if let Some((after_ms, text)) = scripted(&address, "DIAL") {
            sleep(Duration::from_millis(after_ms)).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let (client, server) = duplex(1 << 16);
        tokio::spawn(serve(BufReader::new(server), address));
        Ok(Box::new(client) as Box<dyn Stream>)
    })
}

fn scripted(address: &str, command: &str) -> Option<(u64, String)> {
    SCRIPT.with_borrow(|script| script.as_ref().and_then(|script| script(address, command)))
}

async fn serve(mut stream: BufReader<DuplexStream>, address: String) {
    while let Some(command) = command(&mut stream).await {
        let usual = match &*command {
            "HELLO" => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            // The error of a check names the server.
            "EVALSHA" => format!("-ERR asked {address}\r\n"),
            _ => "+OK\r\n".to_owned(),
        };
        let (after_ms, reply) = scripted(&address, &command).unwrap_or((0, usual));
        sleep(Duration::from_millis(after_ms)).await;
        if reply == HANG_UP {
            return;
        }
        let _ = stream.write_all(reply.as_bytes()).await;
    }
}

/// The name of the next command. `None` at the end of the connection.
async fn command(stream: &mut BufReader<DuplexStream>) -> Option<String> {
    let mut arguments = Vec::new();
    for _ in 0..number(stream).await? {
        let mut argument = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut argument).await.ok()?;
        arguments.push(String::from_utf8_lossy(&argument).trim().to_owned());
    }
    COUNTS.set(arguments.get(2).and_then(|keys| keys.parse().ok()).unwrap_or(0));
    arguments.into_iter().next()
}

/// The number in a line like `*3` or `$5`.
async fn number(stream: &mut BufReader<DuplexStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim().parse().ok()
}

const URL: &str = "redis://:secret@10.0.0.1";

pub(super) fn builder() -> RedisStoreBuilder {
    RedisStore::builder().breaker(None).plain_keys().pool_size(1).first_dial_deadline(Duration::from_secs(5))
}

/// The error of the next check.
pub(super) async fn error(limiter: &Limiter) -> String {
    limiter.check("foo", &Policy::per_hour("p", 10).unwrap(), 1).await.unwrap_err().to_string()
}

#[test]
fn a_server_without_resp3_is_asked_for_resp2_and_a_login_that_is_refused_is_not_sent_again() {
    for (hello, text) in [
        ("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n", "ERR asked"),
        ("-NOPROTO unsupported protocol version\r\n", "ERR asked"),
        (HANG_UP, "ERR asked"),
        // The server would accept the login of RESP2.
        ("-WRONGPASS wrong\r\n", "WRONGPASS wrong"),
    ] {
        let script = move |_: &str, command: &str| (command == "HELLO").then(|| (0, hello.to_owned()));
        run(script, async {
            let error = error(&Limiter::new(builder().open(URL).unwrap())).await;
            assert!(error.contains(text), "{hello}: {error}");
        });
    }
}

#[test]
fn a_step_of_a_scan_is_sent_three_times_without_a_reply_and_once_if_it_is_refused() {
    let silent = ("", ErrorKind::Deadline, 3);
    for (reply, kind, times) in [silent, ("-ERR unknown command\r\n", ErrorKind::StoreMisconfigured, 1)] {
        let steps = Rc::new(Cell::new(0));
        let seen = Rc::clone(&steps);
        let script = move |_: &str, command: &str| {
            seen.set(seen.get() + u32::from(command == "SCAN"));
            (command == "SCAN").then(|| (0, reply.to_owned()))
        };
        run(script, async {
            let store = builder().open(URL).unwrap();
            let cleared = timeout(Duration::from_secs(60), store.clear()).await.expect("it ends");
            assert_eq!(cleared.unwrap_err().kind(), kind);
        });
        assert_eq!(steps.get(), times, "{reply}");
    }
}

#[test]
fn a_request_that_goes_away_during_the_first_dial_neither_asks_for_a_slot_nor_gives_one_back() {
    for (patience_ms, is_sent) in [(500, false), (5_000, true)] {
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let script = move |_: &str, command: &str| {
            seen.set(seen.get() + u32::from(command == "EVALSHA"));
            (command == "HELLO").then(|| (1_000, "%1\r\n+proto\r\n:3\r\n".to_owned()))
        };
        run(script, async {
            let (limiter, slots) =
                (Limiter::new(builder().open(URL).unwrap()), Policy::concurrent("slots", 1).unwrap());
            let app = app(RateLimitLayer::new(limiter, slots, GlobalKey));
            let _ = timeout(Duration::from_millis(patience_ms), get(&app, "/")).await;
            sleep(Duration::from_secs(10)).await;
        });
        assert_eq!(calls.get() > 0, is_sent);
    }
}

type Open = fn(RedisStoreBuilder) -> Result<RedisStore, ConfigError>;

/// The reply of the script with these numbers, whose bytes must be text.
pub(super) fn packed(numbers: &[f64]) -> String {
    let numbers = String::from_utf8(numbers.iter().flat_map(|number| number.to_le_bytes()).collect()).unwrap();
    format!("${}\r\n{numbers}\r\n", numbers.len())
}

/// The reply of the script on charges that all fit: the time of the server, and for each charge an available unit and
/// the time until the next one.
pub(super) fn all_fit() -> String {
    let of_each = |number| vec![number; COUNTS.get()];
    packed(&[vec![2.0], of_each(5.0), of_each(2.0)].concat())
}

/// How often the server `s0` is dialled in a minute of checks, if it answers a login like this.
fn dials(open: Open, hello: &'static str) -> u32 {
    let times = Rc::new(Cell::new(0));
    let seen = Rc::clone(&times);
    let script = move |address: &str, command: &str| {
        let reply = match command {
            "HELLO" if address == "s0:6379" => {
                seen.set(seen.get() + 1);
                hello
            }
            "SENTINEL" => "*2\r\n$1\r\nm\r\n$4\r\n6379\r\n",
            "ROLE" => "*1\r\n$6\r\nmaster\r\n",
            _ => return None,
        };
        Some((0, reply.to_owned()))
    };
    run(script, async {
        let limiter = Limiter::new(open(builder()).unwrap());
        for _ in 0..600 {
            error(&limiter).await;
            sleep(Duration::from_millis(100)).await;
        }
    });
    times.get()
}

#[test]
fn a_login_that_is_refused_is_soon_tried_every_few_seconds_and_other_sentinels_are_dialled_every_second() {
    let server: Open = |builder| builder.open("redis://s0");
    let cluster: Open = |builder| builder.open_cluster(["redis://s0"]);
    let sentinels: Open = |builder| builder.open_sentinel(["redis://s0", "redis://s1", "redis://s2"], "mymaster");
    let (refused, loading) = ("-WRONGPASS wrong\r\n", "-LOADING wait\r\n");
    for (open, hello, expected) in [
        (server, refused, 20..=45),
        (cluster, refused, 20..=45),
        // A silent one is given up after little more than a second, and asked again.
        (cluster, "", 30..=60),
        (sentinels, refused, 20..=45),
        // This one may see a failover as soon as it has loaded.
        (sentinels, loading, 50..=70),
        // For the master, and to be asked every second.
        (sentinels, "%1\r\n+proto\r\n:3\r\n", 1..=5),
    ] {
        let dials = dials(open, hello);
        assert!(expected.contains(&dials), "{dials} of {expected:?}: {hello}");
    }
}

#[test]
fn checks_of_several_keys_without_an_answer_open_the_breaker_after_as_many_as_are_set() {
    let script = |_: &str, command: &str| (command == "EVALSHA").then(|| (0, String::new()));
    run(script, async {
        let breaker = BreakerSettings::default().with_consecutive_timeouts(2);
        let limiter = Limiter::new(builder().breaker(breaker).open(URL).unwrap());
        let policy = Policy::per_hour("p", 10).unwrap();
        for is_open in [false, false, true] {
            let check = Check::new("foo", &policy, 1).and("bar", &policy, 1);
            let error = limiter.check_all(check).await.unwrap_err().to_string();
            assert_eq!(error.contains("breaker is open"), is_open, "{error}");
        }
    });
}

/// A master in the reply to CLUSTER SLOTS.
pub(super) fn master(first: u16, last: u16, host: &str) -> String {
    let address = format!("*2\r\n$1\r\n{host}\r\n:6379\r\n");
    format!("*3\r\n:{first}\r\n:{last}\r\n{address}")
}

#[test]
fn each_master_of_a_cluster_has_all_its_connections_before_its_first_check() {
    let dialled = Rc::<RefCell<Vec<String>>>::default();
    let seen = Rc::clone(&dialled);
    let layout = ["*2\r\n".to_owned(), master(0, 0, "a"), master(1, 16_383, "b")].concat();
    let script = move |address: &str, command: &str| {
        if command == "HELLO" {
            seen.borrow_mut().push(address.to_owned());
        }
        (command == "CLUSTER").then(|| (0, layout.clone()))
    };
    run(script, async {
        let limiter = Limiter::new(builder().pool_size(3).open_cluster(["redis://seed"]).unwrap());
        error(&limiter).await;
        sleep(Duration::from_secs(1)).await;
    });
    dialled.borrow_mut().sort();
    assert_eq!(*dialled.borrow(), [vec!["a:6379"; 3], vec!["b:6379"; 3], vec!["seed:6379"]].concat());
}

#[test]
fn of_the_errors_of_seeds_a_mistake_of_the_setup_says_most_and_a_missing_answer_least() {
    let (refused, loading, silent) = ("-NOPERM no\r\n", "-LOADING wait\r\n", "");
    for (answers, text) in [
        ([(loading, 0), (refused, 20)], "NOPERM no"),
        ([(refused, 0), (loading, 20)], "NOPERM no"),
        ([(loading, 0), (silent, 0)], "LOADING wait"),
    ] {
        let script = move |address: &str, command: &str| {
            let (reply, after_ms) = answers[address[1..2].parse::<usize>().unwrap()];
            (command == "CLUSTER").then(|| (after_ms, reply.to_owned()))
        };
        run(script, async {
            let error = error(&Limiter::new(builder().open_cluster(["redis://s0", "redis://s1"]).unwrap())).await;
            assert!(error.contains(text), "{answers:?}: {error}");
        });
    }
}

#[test]
fn law_3_a_shared_call_that_has_failed_is_sent_again_only_if_its_keys_are_not_together() {
    const CHECKS: u64 = 5;
    let each_failed = "a number that no count has";
    for (reply, is_sent_again) in
        [("-ERR broken\r\n", false), ("-TRYAGAIN Multiple keys request\r\n", true), (each_failed, false)]
    {
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let script = move |_: &str, command: &str| {
            seen.set(seen.get() + u64::from(command == "EVALSHA"));
            let numbers = || [vec![2.0], vec![2.5; COUNTS.get()], vec![2.0; COUNTS.get()]].concat();
            let reply = || if reply == each_failed { packed(&numbers()) } else { reply.to_owned() };
            (command == "EVALSHA").then(|| (0, reply()))
        };
        run(script, async {
            let (limiter, policy) = (Limiter::new(builder().open(URL).unwrap()), Policy::per_hour("p", 10).unwrap());
            let checks: JoinSet<_> = (0..CHECKS).map(|key| limiter.check(key, &policy, 1)).collect();
            assert!(checks.join_all().await.iter().all(Result::is_err));
        });
        assert_eq!(calls.get() > CHECKS, is_sent_again, "{reply}: {} calls", calls.get());
    }
}

/// "bar" is in a slot of the first node, "foo" in one of the second, which is silent.
#[test]
fn a_silent_slot_with_shadow_policies_alone_opens_its_breaker() {
    let layout = ["*2\r\n".to_owned(), master(0, 8_191, "a"), master(8_192, 16_383, "b")].concat();
    // A charge that fits: the time of the server, an available unit, and the time until the next one.
    let fits = packed(&[2.0, 5.0, 2.0]);
    let script = move |address: &str, command: &str| {
        let reply = match (address, command) {
            ("b:6379", "EVALSHA") => "",
            (_, "EVALSHA") => fits.as_str(),
            (_, "CLUSTER") => layout.as_str(),
            _ => return None,
        };
        Some((0, reply.to_owned()))
    };
    run(script, async {
        let of_timeouts = BreakerSettings::default().with_consecutive_timeouts(1).with_consecutive_failures(0);
        let builder = builder().breaker(of_timeouts.with_failure_rate_min_samples(0));
        let limiter = Limiter::new(builder.open_cluster(["redis://a"]).unwrap()).without_notices();
        let policy = Policy::per_hour("p", 10).unwrap();
        let shadow = policy.clone().with_shadow(true);
        let mut delayed = 0;
        while !limiter.is_breaker_open() {
            let check = Check::new("bar", &policy, 0).and("foo", &shadow, 1);
            assert!(limiter.check_all(check).await.unwrap().is_allowed());
            delayed += 1;
            assert!(delayed < 40, "each check waits for the silent slot");
        }
    });
}

#[test]
fn a_slot_is_found_by_the_layout_of_most_masters_and_by_a_redirection_that_names_no_host() {
    let old = ["*3\r\n".to_owned(), master(0, 0, "a"), master(1, 1, "b"), master(2, 16_383, "c")].concat();
    let new = ["*2\r\n".to_owned(), master(0, 0, "a"), master(1, 16_383, "b")].concat();
    let has_moved = Cell::new(false);
    let script = move |address: &str, command: &str| {
        let reply = match (address, command) {
            ("c:6379", "EVALSHA") => {
                has_moved.set(true);
                "-CLUSTERDOWN Hash slot not served\r\n"
            }
            ("b:6379", "EVALSHA") => "-MOVED 12182 :7009\r\n",
            // The node of the URL does not hear of the change.
            (_, "CLUSTER") if has_moved.get() && address != "seed:6379" => new.as_str(),
            (_, "CLUSTER") => old.as_str(),
            _ => return None,
        };
        Some((0, reply.to_owned()))
    };
    run(script, async {
        let limiter = Limiter::new(builder().open_cluster(["redis://seed"]).unwrap());
        let mut last = String::new();
        for _ in 0..100 {
            last = error(&limiter).await;
            sleep(Duration::from_millis(20)).await;
        }
        assert!(last.contains("asked b:7009"), "{last}");
    });
}
