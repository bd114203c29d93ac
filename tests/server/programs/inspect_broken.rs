//! `examples/inspect` on a server that is full, and beside a value that is no count.

use tollgate::{Policy, policy::HoldSettings, redis};

use crate::inspect_holds::{cell, notes};
use crate::{inspect::Service, support::redis_server::RedisServer};

const POLICIES: [&str; 4] = ["--policy", "login=5/min", "--policy", "per-client=60/min"];

/// A service that has charged alice 3 units of each policy.
async fn charged(server: &RedisServer) -> Service {
    let service = Service::on(server);
    for (name, limit) in [("login", 5), ("per-client", 60)] {
        let policy = Policy::per_minute(name, limit).unwrap();
        let _ = service.limiter.check("alice", &policy, 3).await.unwrap();
    }
    service
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_and_resets_counts_of_a_server_whose_memory_is_full() {
    let server = RedisServer::start();
    let service = charged(&server).await;
    server.command("CONFIG SET maxmemory-policy noeviction");
    server.command("CONFIG SET maxmemory 1");
    let alice = [&POLICIES[..], &["text:alice"]].concat();

    let standing = service.inspect("peek", &alice);
    assert_eq!(standing.cells("per-client")[..4], ["per-client", "60/1m", "3", "57"]);
    assert!(standing.stderr.contains("raise its maxmemory"), "{standing:?}");
    let removed = service.inspect("reset", &alice);
    assert_eq!(removed.cells("login"), ["login", "3", "of", "5", "units"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_the_other_counts_beside_a_value_that_is_no_count() {
    let server = RedisServer::start();
    let service = charged(&server).await;
    let alice = [&POLICIES[..], &["text:alice"]].concat();
    let login = service.inspect("peek", &alice).cells("login").pop().unwrap().to_owned();
    server.command(&format!("SET {login} garbage"));

    let standing = service.inspect("peek", &alice);
    assert!(standing.code == 1 && standing.stdout.contains("per-client  60/1m"), "{standing:?}");
    assert!(standing.stderr.contains("login: a value is no count of tollgate; reset removes it"), "{standing:?}");
    // The error names the client as the logs of the service do, whose fingerprints have the secret of the store.
    let fingerprint = login.split(['$', '}']).nth(1).unwrap();
    assert!(standing.stderr.contains(&format!("(key {fingerprint} under policy \"login\")")), "{standing:?}");

    let removed = service.inspect("reset", &alice);
    assert!(removed.code == 0 && removed.stdout.contains("per-client  3 of 60 units"), "{removed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_changes_nothing_on_a_server_whose_memory_is_full_and_says_so() {
    let server = RedisServer::start();
    let service = charged(&server).await;
    server.command("CONFIG SET maxmemory-policy noeviction");
    server.command("CONFIG SET maxmemory 1");
    for (command, amount) in [("take", &["3"][..]), ("ban", &["10m"])] {
        let refused = service.inspect(command, &[&["--policy", "per-client=60/min", "text:alice"], amount].concat());
        assert!(refused.code == 1 && refused.stderr.contains(" OOM "), "{refused:?}");
        assert!(refused.stdout.ends_with("per-client  nothing\n"), "{refused:?}");
        assert!(refused.stderr.contains("per-client: nothing was changed"), "{refused:?}");
        assert!(!refused.stderr.contains("may have been made"), "{refused:?}");
    }
    let standing = service.inspect("peek", &["--policy", "per-client=60/min", "text:alice"]);
    assert_eq!(standing.cells("per-client")[2..4], ["3", "57"]);
}

/// A head that is no head, or has a wrong number of units: the service answers 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_reports_and_resets_holds_that_the_service_cannot_read() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let tokens = Policy::per_minute("tokens", 1_000).unwrap().with_holds(HoldSettings::new());
    let count = cell(&service.inspect("peek", &["--policy", "tokens=1000/min", "text:alice"]), "tokens", "redis key");
    let holds = count.replace(":tokens:", ":tokens(holds):");
    for poison in ["inf x", "-inf y", "0 x", "5 tttttttttttttttttttttttt!", "-1.5 tttttttttttttttttttttttt!"] {
        for written in ["tokens=1000/min", "tokens=1000/min,holds"] {
            let _ = service.limiter.check("alice", &tokens, 7).await.unwrap();
            server.command(&format!("ZADD {holds} {poison}"));
            service.limiter.hold("alice", &tokens, 1).await.map(drop).unwrap_err();
            let arguments = ["--policy", written, "text:alice"];

            let seen = service.inspect("peek", &arguments);
            assert_eq!(seen.code, 1, "{poison}: {seen:?}");
            assert!(seen.stderr.contains("NOTACOUNT"), "{poison}: {seen:?}");
            assert!(seen.stderr.contains("tokens: ") && seen.stderr.contains("reset removes it"), "{poison}: {seen:?}");

            let removed = service.inspect("reset", &arguments);
            let expected = match written {
                "tokens=1000/min" => "7 of 1000 units, and open holds that are no value of tollgate",
                _ => "a value that is no count of tollgate",
            };
            assert_eq!(cell(&removed, "tokens", "removed"), expected, "{poison}: {removed:?}");
            assert!(service.limiter.hold("alice", &tokens, 1).await.unwrap().is_allowed(), "{poison}");
            service.limiter.reset("alice", &tokens).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_slots_that_the_service_cannot_read_under_a_policy_without_slots() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let streams = Policy::concurrent("streams", 4).unwrap();
    let peek = service.inspect("peek", &["--policy", "streams=concurrent:4", "text:alice"]);
    let slots = cell(&peek, "streams", "redis key").replace(":streams:", ":streams(holds):");
    server.command(&format!("ZADD {slots} 0 x"));
    let seen = service.inspect("peek", &["--policy", "streams=4/min", "text:alice"]);
    assert!(seen.code == 1 && notes(&seen)[0].contains("reset removes it"), "{seen:?}");
    let removed = service.inspect("reset", &["--policy", "streams=4/min", "text:alice"]);
    assert_eq!(cell(&removed, "streams", "removed"), "open holds that are no value of tollgate");
    assert!(service.limiter.hold("alice", &streams, 1).await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_a_pause_that_no_limiter_has_written() {
    let server = RedisServer::start();
    let service = charged(&server).await;
    let alice = ["--policy", "login=5/min", "text:alice"];
    let login = service.inspect("peek", &alice).cells("login").pop().unwrap().to_owned();
    let (tag, _) = login.split_once(":login").unwrap();
    let (): () = redis::cmd("SET")
        .arg(format!("{tag}:login pause:b3:1s"))
        .arg("garbage")
        .query(&mut server.connection())
        .unwrap();
    for removed in ["3 of 5 units", "nothing"] {
        let reset = service.inspect("reset", &alice);
        assert!(reset.stdout.contains(removed), "{reset:?}");
    }
    let left = server.command("KEYS *pause*");
    assert!(left.starts_with("*0"), "{left}");
}
