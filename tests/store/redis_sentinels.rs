//! How a store behind sentinels follows the master that they name, in a simulated world.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate::Limiter;

use super::redis_world::{builder, error, run};

/// All sentinels name one server, and all servers are masters. The server `wrong` refuses logins, which are counted.
fn script(named: Rc<Cell<&'static str>>, refused: Rc<Cell<u32>>) -> impl Fn(&str, &str) -> Option<(u64, String)> {
    move |address: &str, command: &str| {
        let reply = match command {
            "HELLO" if address == "wrong:6379" => {
                refused.set(refused.get() + 1);
                "-WRONGPASS wrong\r\n".to_owned()
            }
            "SENTINEL" => format!("*2\r\n${}\r\n{}\r\n$4\r\n6379\r\n", named.get().len(), named.get()),
            "ROLE" => "*1\r\n$6\r\nmaster\r\n".to_owned(),
            _ => return None,
        };
        Some((0, reply))
    }
}

/// Checks for some seconds. The last check must have asked this server.
async fn asks(limiter: &Limiter, server: &str, seconds: u32) {
    let mut last = String::new();
    for _ in 0..10 * seconds {
        last = error(limiter).await;
        sleep(Duration::from_millis(100)).await;
    }
    assert!(last.contains(&format!("asked {server}:6379")), "{server}: {last}");
}

#[test]
fn a_new_master_that_refuses_the_login_is_soon_dialled_every_few_seconds_and_another_one_is_followed_at_once() {
    let (named, refused) = (Rc::new(Cell::new("old")), Rc::default());
    run(script(Rc::clone(&named), Rc::clone(&refused)), async {
        let limiter = Limiter::new(builder().open_sentinel(["redis://s0"], "mymaster").unwrap());
        for (server, seconds, asked) in [("old", 3, "old"), ("wrong", 60, "old"), ("new", 3, "new")] {
            named.set(server);
            asks(&limiter, asked, seconds).await;
        }
    });
    assert!((10..=40).contains(&refused.get()), "{} logins", refused.get());
}

#[test]
fn sentinels_are_asked_once_a_second() {
    let questions = Rc::new(Cell::new(0));
    let seen = Rc::clone(&questions);
    let script = script(Rc::new(Cell::new("old")), Rc::default());
    let counted = move |address: &str, command: &str| {
        seen.set(seen.get() + u32::from(command == "SENTINEL"));
        script(address, command)
    };
    run(counted, async {
        let limiter = Limiter::new(builder().open_sentinel(["redis://s0"], "mymaster").unwrap());
        asks(&limiter, "old", 60).await;
    });
    // The first dial asks too.
    assert!((55..=65).contains(&questions.get()), "{} questions", questions.get());
}

/// As after the loss of a machine with a replica and a sentinel.
#[test]
fn law_1_a_silent_sentinel_does_not_keep_a_store_at_a_master_that_the_others_have_replaced() {
    for settled_ms in [3_000, 3_300, 3_600, 3_900] {
        let named = Rc::new(Cell::new("old"));
        let others = script(Rc::clone(&named), Rc::default());
        let script = move |address: &str, command: &str| match (address, command) {
            ("s0:6379", "SENTINEL") => Some((0, String::new())),
            _ => others(address, command),
        };
        run(script, async {
            let sentinels = ["redis://s0", "redis://s1", "redis://s2"];
            let limiter = Limiter::new(builder().open_sentinel(sentinels, "mymaster").unwrap());
            error(&limiter).await;
            sleep(Duration::from_millis(settled_ms)).await;
            named.set("new");
            let start = Instant::now();
            while !error(&limiter).await.contains("asked new:6379") {
                sleep(Duration::from_millis(20)).await;
            }
            // The others are asked within a second.
            assert!(start.elapsed() <= Duration::from_millis(1_200), "{settled_ms}: {:?}", start.elapsed());
        });
    }
}

/// Each of five sentinels names a server after some milliseconds, or replies something else, or nothing.
#[test]
fn most_sentinels_decide_which_server_with_the_role_of_a_master_is_followed() {
    let (certificate, loading, unknown) = ("wrong certificate", "-LOADING wait\r\n", "$-1\r\n");
    let refused = "-WRONGPASS wrong\r\n";
    let is_server = |answer: &str| ["old", "new", "replica", "refuses", "silent"].contains(&answer);
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
        ([(certificate, 0), (loading, 50), (loading, 50), (loading, 50), (loading, 50)], certificate),
        ([(certificate, 0), (refused, 50), (refused, 50), (refused, 50), (refused, 50)], certificate),
        ([(refused, 0), (loading, 50), (loading, 50), (loading, 50), (loading, 50)], "WRONGPASS wrong"),
        // That of the server, as far as one is named.
        ([("replica", 0), ("replica", 0), (loading, 50), (refused, 50), (unknown, 50)], "not a master yet"),
        ([(certificate, 50), ("replica", 0), ("replica", 0), ("replica", 0), ("replica", 0)], "not a master yet"),
        ([("refuses", 0), ("refuses", 0), ("refuses", 0), ("replica", 50), ("replica", 50)], "WRONGPASS wrong"),
        // Also if others are silent, unless a server is that may be the master.
        ([("refuses", 0), ("refuses", 0), ("refuses", 0), ("", 0), ("", 0)], "WRONGPASS wrong"),
        ([("refuses", 0), ("refuses", 0), ("silent", 0), ("", 0), ("", 0)], "no connection within"),
        ([("refuses", 0), ("refuses", 0), ("", 0), ("", 0), ("", 0)], "no connection within"),
        ([(refused, 0), (refused, 0), (refused, 0), ("", 0), ("", 0)], "no connection within"),
    ] {
        let script = move |address: &str, command: &str| match command {
            "DIAL" if address == "s0:26379" && answers[0].0 == certificate => Some((0, certificate.to_owned())),
            "SENTINEL" => {
                let (answer, after_ms) = answers[address[1..2].parse::<usize>().unwrap()];
                let reply = match answer {
                    name if is_server(name) => format!("*2\r\n${}\r\n{answer}\r\n$4\r\n6379\r\n", answer.len()),
                    reply => reply.to_owned(),
                };
                Some((after_ms, reply))
            }
            "HELLO" if address.starts_with("refuses") => Some((0, refused.to_owned())),
            "HELLO" if address.starts_with("silent") => Some((0, String::new())),
            "ROLE" if address.starts_with("replica") => Some((0, "*1\r\n$5\r\nslave\r\n".to_owned())),
            "ROLE" => Some((0, "*1\r\n$6\r\nmaster\r\n".to_owned())),
            _ => None,
        };
        run(script, async {
            let sentinels = (0..5).map(|number| format!("redis://s{number}:26379"));
            let limiter = Limiter::new(builder().open_sentinel(sentinels, "mymaster").unwrap());
            let first = error(&limiter).await;
            // The first check does not wait for ever, and the next one knows what the dials have met.
            sleep(Duration::from_secs(1)).await;
            let last = error(&limiter).await;
            assert!(last.contains(text), "{answers:?}: {first}, {last}");
        });
    }
}

/// As after the loss of the machine on which the old master and a sentinel were, or with a wrong login at one sentinel.
#[test]
fn a_sentinel_that_says_nothing_of_use_neither_hides_what_the_master_says_nor_slows_the_dials_of_one_that_is_away() {
    for (command, reply, named, text, expected) in [
        ("SENTINEL", "", "wrong", "WRONGPASS wrong", 40..=90),
        ("HELLO", "-WRONGPASS s0\r\n", "silent", "no connection within", 120..=220),
    ] {
        let logins = Rc::<Cell<u32>>::default();
        let (seen, others) = (Rc::clone(&logins), script(Rc::new(Cell::new(named)), Rc::default()));
        let script = move |address: &str, asked: &str| {
            seen.set(seen.get() + u32::from(asked == "HELLO" && address.starts_with(named)));
            match address {
                "s0:6379" if asked == command => Some((0, reply.to_owned())),
                "silent:6379" if asked == "HELLO" => Some((0, String::new())),
                _ => others(address, asked),
            }
        };
        run(script, async {
            let sentinels = ["redis://s0", "redis://s1", "redis://s2"];
            let limiter = Limiter::new(builder().open_sentinel(sentinels, "mymaster").unwrap());
            let (start, mut last) = (Instant::now(), String::new());
            while start.elapsed() < Duration::from_secs(60) {
                last = error(&limiter).await;
                sleep(Duration::from_millis(100)).await;
            }
            assert!(last.contains(text), "{last}");
        });
        // Those of the connection, and those of the task that asks the sentinels.
        assert!(expected.contains(&logins.get()), "{} of {expected:?} logins: {text}", logins.get());
    }
}

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

fn source() -> io::Result<(&'static str, &'static str)> {
    assert!(!PANICS.replace(false), "the test wants a panic");
    Ok(("user", "secret"))
}

#[test]
fn a_login_source_that_panics_fails_its_dial_and_is_asked_at_the_next_one() {
    run(script(Rc::default(), Rc::default()), async {
        let limiter = Limiter::new(builder().login_from(source).open("redis://s0").unwrap());
        PANICS.set(true);
        let failed = error(&limiter).await;
        assert!(failed.contains("login_from has failed: it has panicked"), "{failed}");
        asks(&limiter, "s0", 1).await;
    });
}

#[test]
fn a_dial_that_panics_fails_and_keeps_no_later_one_from_being_made() {
    let (server, sentinel) = (["s0"; 2], ["old", "new"]);
    for (masters, panics) in
        [(server, "s0:6379"), (sentinel, "s0:6379"), (sentinel, "old:6379"), (sentinel, "new:6379")]
    {
        let (named, has_panicked) = (Rc::new(Cell::new(masters[0])), Rc::new(Cell::new(false)));
        let (others, seen) = (script(Rc::clone(&named), Rc::default()), Rc::clone(&has_panicked));
        let script = move |address: &str, command: &str| {
            let is_meant = command == "DIAL" && address == panics;
            assert!(!is_meant || seen.replace(true), "the test wants a panic");
            others(address, command)
        };
        run(script, async {
            let store = match masters == server {
                true => builder().open("redis://s0"),
                false => builder().open_sentinel(["redis://s0"], "mymaster"),
            };
            let limiter = Limiter::new(store.unwrap());
            for master in masters {
                named.set(master);
                asks(&limiter, master, 5).await;
            }
        });
        assert!(has_panicked.get(), "{panics}");
    }
}

#[test]
fn a_new_master_is_followed_although_a_login_source_has_panicked() {
    for is_of_sentinel in [true, false] {
        let named = Rc::new(Cell::new("old"));
        run(script(Rc::clone(&named), Rc::default()), async {
            let builder = match is_of_sentinel {
                true => builder().sentinel_login_from(source),
                false => builder().login_from(source),
            };
            // Both have to name a new master.
            let limiter = Limiter::new(builder.open_sentinel(["redis://s0", "redis://s1"], "mymaster").unwrap());
            error(&limiter).await;
            PANICS.set(true);
            named.set("new");
            asks(&limiter, "new", 5).await;
            assert!(!PANICS.get(), "the source was asked");
        });
    }
}
