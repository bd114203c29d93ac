//! `examples/inspect` and bans after denials, whose numbers an operator may not know: no header names them.

use std::time::Duration;

use tollgate::Policy;

use crate::inspect::{Ran, Service};
use crate::inspect_holds::{cell, notes};
use crate::support::{cluster::Cluster, redis_server::RedisServer};

/// What an operator may write for a policy with `ban-after=5/10m`: nothing of it, wrong numbers, and the right ones.
const WRITTEN: [&str; 6] = ["", ",ban-after=20/10m", ",ban-after=1/10m", ",ban-after=5/5m", ",ban-after=2/3h", RIGHT];
const RIGHT: &str = ",ban-after=5/10m";

fn login() -> Policy {
    Policy::per_minute("login", 5).unwrap().ban_after(5, Duration::from_secs(600))
}

/// Spends the limit of alice, and is then denied `denials` times.
async fn denied(service: &Service, denials: u64) {
    // An earlier part of the test may have left denials that are remembered.
    for _ in 0..5 {
        assert!(service.limiter.check("alice", &login(), 1).await.unwrap().is_allowed());
    }
    for _ in 0..denials {
        assert!(!service.limiter.check("alice", &login(), 1).await.unwrap().is_allowed());
    }
}

async fn is_banned(service: &Service) -> bool {
    service.limiter.peek("alice", &login()).await.unwrap().policies()[0].ban.is_some()
}

/// Runs a command on alice, under the policy as an operator writes it.
fn run(service: &Service, command: &str, words: &str) -> Ran {
    service.inspect(command, &["--policy", &format!("login=5/60s{words}"), "text:alice"])
}

/// Whether a text begins with ten minutes, or a little less.
fn is_ten_minutes(text: &str) -> bool {
    text.starts_with("10m0s") || text.starts_with("9m5")
}

/// Whether a text has these words, and then ten minutes or a little less.
fn says(text: &str, words: &str) -> bool {
    text.split_once(words).is_some_and(|(_, rest)| is_ten_minutes(rest))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_a_ban_after_denials_whatever_numbers_are_written_and_says_which_are_right() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    denied(&service, 5).await;
    for words in WRITTEN {
        let seen = run(&service, "peek", words);
        assert!(is_ten_minutes(&cell(&seen, "login", "ban")), "{words}: {seen:?}");
        assert_eq!(cell(&seen, "login", "available"), "0", "{words}: {seen:?}");
        let advice = notes(&seen);
        if words == RIGHT {
            assert!(advice.is_empty(), "{advice:?}");
        } else {
            assert!(says(advice[0], "login: the client is banned for "), "{words}: {advice:?}");
            assert!(advice[0].contains("write ,ban-after=5/10m"), "{words}: {advice:?}");
            assert_eq!(advice.len(), 1, "{words}: {advice:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_a_ban_after_denials_whatever_numbers_are_written() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    for words in WRITTEN {
        denied(&service, 5).await;
        let removed = run(&service, "reset", words);
        assert!(says(&cell(&removed, "login", "removed"), "and a ban of "), "{words}: {removed:?}");
        assert!(!is_banned(&service).await, "{words}: {removed:?}");
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_ends_a_ban_after_denials_whatever_numbers_are_written_and_says_so() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    for words in WRITTEN {
        denied(&service, 5).await;
        let ended = run(&service, "unban", words);
        assert!(says(&ended.stdout, "login   a ban ended, of which "), "{words}: {ended:?}");
        assert!(!is_banned(&service).await, "{words}: {ended:?}");
        assert_eq!(service.limiter.peek("alice", &login()).await.unwrap().available(), Some(0), "the count stays");
        service.limiter.reset("alice", &login()).await.unwrap();
    }
    let nothing = run(&service, "unban", "");
    assert!(nothing.stdout.contains("login   nothing: no ban was found"), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_tells_denials_that_are_counted_from_a_ban() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    denied(&service, 3).await;
    for words in ["", ",ban-after=20/10m", RIGHT] {
        let seen = run(&service, "peek", words);
        assert_eq!(cell(&seen, "login", "ban"), "-", "{words}: {seen:?}");
        assert_eq!(cell(&seen, "login", "spent"), "5", "{words}: {seen:?}");
    }
    // With a smaller number the client would be banned. The service counts to 5.
    let smaller = run(&service, "peek", ",ban-after=1/10m");
    assert!(notes(&smaller)[0].contains("the service bans after 5 denials"), "{smaller:?}");
    // A reset forgets the denials too: four more are no ban.
    run(&service, "reset", "");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    denied(&service, 4).await;
    assert!(!is_banned(&service).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_finds_a_ban_after_denials_on_a_cluster() {
    let cluster = Cluster::start();
    let url = cluster.nodes[1].url();
    let service = Service::new(&["--cluster", &url], |builder| builder.open_cluster([&url]).unwrap());
    denied(&service, 5).await;
    assert!(is_ten_minutes(&cell(&run(&service, "peek", ""), "login", "ban")));
    run(&service, "reset", "");
    assert!(!is_banned(&service).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_reports_and_resets_denials_that_are_no_count() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let count = cell(&run(&service, "peek", ""), "login", "redis key");
    let denials = count.replace(":login:l5:1m", ":login(ban):l5:10m");
    for poison in [format!("SET {denials} garbage"), format!("SADD {denials} x")] {
        server.command(&poison);
        let seen = run(&service, "peek", "");
        assert!(seen.code == 1 && seen.stderr.contains("login: a value is no count of tollgate"), "{seen:?}");
        let removed = run(&service, "reset", "");
        assert_eq!(cell(&removed, "login", "removed"), "a value that is no count of tollgate");
        assert!(service.limiter.check("alice", &login(), 1).await.unwrap().is_allowed());
        service.limiter.reset("alice", &login()).await.unwrap();
    }
}
