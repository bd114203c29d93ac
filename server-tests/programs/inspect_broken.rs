//! `examples/inspect` on a server that is full, and beside a value that is no count.

use tollgate::Policy;

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
