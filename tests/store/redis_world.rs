//! `RedisStore` in a simulated world: servers reply by a script, and time passes when all wait.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex},
    runtime::Builder,
    time::{sleep, timeout},
};
use tollgate::{
    ErrorKind, Limiter, Policy, RedisStore,
    store::RedisStoreBuilder,
    world::{Dialled, Stream, World},
};

/// What the server at an address replies to a command, and after how many milliseconds. An empty text is no reply.
/// `None`: the usual reply.
type Script = Box<dyn Fn(&str, &str) -> Option<(u64, String)>>;

thread_local! {
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

fn run(script: impl Fn(&str, &str) -> Option<(u64, String)> + 'static, test: impl Future<Output = ()>) {
    let _world = World::enter(1_767_225_600_000_000, 1).with_dial(dial);
    SCRIPT.set(Some(Box::new(script)));
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

fn dial(host: &str, port: u16) -> Dialled {
    let address = format!("{host}:{port}");
    Box::pin(async move {
        let (client, server) = duplex(1 << 16);
        tokio::spawn(serve(BufReader::new(server), address));
        Ok(Box::new(client) as Box<dyn Stream>)
    })
}

async fn serve(mut stream: BufReader<DuplexStream>, address: String) {
    while let Some(command) = command(&mut stream).await {
        let scripted = SCRIPT.with_borrow(|script| script.as_ref().and_then(|script| script(&address, &command)));
        let usual = match &*command {
            "HELLO" => "%1\r\n+proto\r\n:3\r\n".to_owned(),
            // The error of a check names the server.
            "EVALSHA" => format!("-ERR asked {address}\r\n"),
            _ => "+OK\r\n".to_owned(),
        };
        let (after_ms, reply) = scripted.unwrap_or((0, usual));
        sleep(Duration::from_millis(after_ms)).await;
        let _ = stream.write_all(reply.as_bytes()).await;
    }
}

/// The name of the next command. `None` at the end of the connection.
async fn command(stream: &mut BufReader<DuplexStream>) -> Option<String> {
    let mut name = None;
    for _ in 0..number(stream).await? {
        let mut argument = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut argument).await.ok()?;
        name.get_or_insert_with(|| String::from_utf8_lossy(&argument).trim().to_owned());
    }
    name
}

/// The number in a line like `*3` or `$5`.
async fn number(stream: &mut BufReader<DuplexStream>) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim().parse().ok()
}

const URL: &str = "redis://:secret@10.0.0.1";

fn builder() -> RedisStoreBuilder {
    RedisStore::builder().breaker(None).plain_keys().pool_size(1).first_dial_deadline(Duration::from_secs(5))
}

/// The error of the next check.
async fn error(limiter: &Limiter) -> String {
    limiter.check("foo", &Policy::per_hour("p", 10).unwrap(), 1).await.unwrap_err().to_string()
}

#[test]
fn a_server_without_resp3_is_asked_for_resp2_and_a_login_that_is_refused_is_not_sent_again() {
    for (hello, text) in [
        ("-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n", "ERR asked"),
        ("-NOPROTO unsupported protocol version\r\n", "ERR asked"),
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
fn a_slot_is_found_by_the_layout_of_most_masters_and_by_a_redirection_that_names_no_host() {
    let master = |first: u16, last: u16, host: &str| {
        let address = format!("*2\r\n$1\r\n{host}\r\n:6379\r\n");
        format!("*3\r\n:{first}\r\n:{last}\r\n{address}")
    };
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

/// Each of five sentinels names a server after some milliseconds, or replies something else, or nothing.
#[test]
fn most_sentinels_decide_which_server_with_the_role_of_a_master_is_followed() {
    let (loading, unknown) = ("-LOADING wait\r\n", "$-1\r\n");
    for (answers, text) in [
        // Those that know of a failover are slower, or faster.
        ([("old", 0), ("old", 0), ("new", 50), ("new", 50), ("new", 50)], "asked new:6379"),
        ([("new", 0), ("new", 0), ("new", 0), ("old", 50), ("old", 50)], "asked new:6379"),
        // Distant ones, and silent ones.
        ([("old", 150); 5], "asked old:6379"),
        ([("old", 0), ("old", 0), ("old", 0), ("", 0), ("", 0)], "asked old:6379"),
        // Most lag behind.
        ([("replica", 0), ("replica", 0), ("replica", 0), ("new", 0), ("new", 0)], "asked new:6379"),
        // The error that says most.
        ([(loading, 0), (unknown, 50), (unknown, 50), (unknown, 50), (unknown, 50)], "LOADING wait"),
        ([(unknown, 0), (unknown, 0), (unknown, 0), (unknown, 0), (loading, 50)], "LOADING wait"),
    ] {
        let script = move |address: &str, command: &str| match command {
            "SENTINEL" => {
                let (answer, after_ms) = answers[address[1..2].parse::<usize>().unwrap()];
                let reply = match answer {
                    "old" | "new" | "replica" => format!("*2\r\n${}\r\n{answer}\r\n$4\r\n6379\r\n", answer.len()),
                    reply => reply.to_owned(),
                };
                Some((after_ms, reply))
            }
            "ROLE" if address.starts_with("replica") => Some((0, "*1\r\n$5\r\nslave\r\n".to_owned())),
            "ROLE" => Some((0, "*1\r\n$6\r\nmaster\r\n".to_owned())),
            _ => None,
        };
        run(script, async {
            let sentinels = (0..5).map(|number| format!("redis://s{number}:26379"));
            let error = error(&Limiter::new(builder().open_sentinel(sentinels, "mymaster").unwrap())).await;
            assert!(error.contains(text), "{answers:?}: {error}");
        });
    }
}
