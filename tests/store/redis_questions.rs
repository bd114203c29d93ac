//! What a store asks a server beside checks, in a simulated world.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::sleep;
use tollgate::store::{Answer, HoldChange, Store};
use tollgate::{Check, ErrorKind, Limiter, Policy, policy::HoldSettings};

use super::redis_world::{builder, packed, run};

const URL: &str = "redis://10.0.0.1";

#[test]
fn the_eviction_policy_is_asked_for_until_a_reply_comes_in_time_and_not_after_a_refusal() {
    let info = "maxmemory_policy:noeviction";
    let known = format!("${}\r\n{info}\r\n", info.len());
    // The first reply, after how many milliseconds it comes, and how often the server is asked.
    for (first, after_ms, times) in [(&*known, 0, 1), (&*known, 200, 2), ("-NOPERM no\r\n", 0, 1)] {
        let questions = Rc::new(Cell::new(0));
        let (seen, first, known) = (Rc::clone(&questions), first.to_owned(), known.clone());
        let script = move |_: &str, command: &str| match command {
            "EVALSHA" => Some((0, packed(&[2.0, 5.0, 2.0]))),
            "INFO" => {
                seen.set(seen.get() + 1);
                Some(if seen.get() == 1 { (after_ms, first.clone()) } else { (0, known.clone()) })
            }
            _ => None,
        };
        run(script, async {
            let (limiter, policy) = (Limiter::new(builder().open(URL).unwrap()), Policy::per_hour("p", 10).unwrap());
            for _ in 0..10 {
                // A check behind a late reply fails.
                let _ = limiter.check("foo", &policy, 1).await;
                sleep(Duration::from_millis(100)).await;
            }
        });
        assert_eq!(questions.get(), times, "{after_ms}");
    }
}

#[test]
fn bans_are_looked_for_with_the_duration_of_the_policy_too_and_a_refusal_is_an_error() {
    let [minute, own] = [60, 600].map(Duration::from_secs);
    let login = Policy::per_minute("login", 5).unwrap().ban_after(3, own);
    let foreign = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    for (reply, durations, expected) in [
        ("$0\r\n\r\n", [minute], Ok(vec![])),
        (foreign, [minute], Ok(vec![(1, minute), (1, own)])),
        (foreign, [own], Ok(vec![(1, own)])),
        ("-NOPERM no\r\n", [minute], Err(ErrorKind::StoreMisconfigured)),
    ] {
        let script = move |_: &str, command: &str| (command == "GETRANGE").then(|| (0, reply.to_owned()));
        run(script, async {
            let store = builder().open(URL).unwrap();
            let found = store.ban_settings("alice", &login, &durations).await;
            assert_eq!(found.map_err(|error| error.kind()), expected, "{reply}");
        });
    }
}

#[test]
fn a_change_of_a_hold_that_the_server_refuses_is_sent_once() {
    let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
    let check = Check::hold("alice", &policy, 3);
    for change in [HoldChange::Renew, HoldChange::Settle(2), HoldChange::Settle(0)] {
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let script = move |_: &str, command: &str| {
            seen.set(seen.get() + u32::from(command == "EVALSHA"));
            (command == "EVALSHA").then(|| (0, "-ERR broken\r\n".to_owned()))
        };
        run(script, async {
            let store = builder().open(URL).unwrap();
            let Answer::Pending(answer) = store.change_hold(&check.charges()[0], change) else {
                panic!("the server is asked")
            };
            let error = answer.await.unwrap_err().to_string();
            assert!(error.contains("ERR broken"), "{error}");
        });
        assert_eq!(calls.get(), 1, "{change:?}");
    }
}
