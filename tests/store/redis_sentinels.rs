//! How a store behind sentinels follows the master that they name, in a simulated world.

use std::{cell::Cell, io, rc::Rc, time::Duration};

use tokio::time::sleep;
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
