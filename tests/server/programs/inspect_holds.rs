//! `examples/inspect` under holds, concurrency limits and leases, and the advice that it gives.

use std::time::Duration;

use tollgate::{Policy, policy::HoldSettings, redis};

use crate::inspect::{Ran, Service};
use crate::support::{cluster::Cluster, redis_server::RedisServer, sentinel::Trio};

fn tokens() -> Policy {
    Policy::per_minute("tokens", 100_000).unwrap().with_holds(HoldSettings::new())
}

/// The cells of the policy's row, by the titles of the columns.
fn row(ran: &Ran, policy: &str) -> Vec<(String, String)> {
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut lines = ran.stdout.lines();
    let titles = lines.next().unwrap();
    let line = lines.find(|line| line.starts_with(policy)).unwrap_or_else(|| panic!("{ran:?}"));
    // Columns are two blanks apart, and cells are aligned left or right, so a cell overlaps its title.
    let spans = |line: &str| -> Vec<(usize, usize, String)> {
        let mut found = Vec::new();
        let mut from = 0;
        for cell in line.split("  ") {
            if !cell.trim().is_empty() {
                let at = from + cell.len() - cell.trim_start().len();
                found.push((at, at + cell.trim().len(), cell.trim().to_owned()));
            }
            from += cell.len() + 2;
        }
        found
    };
    let cells = spans(line);
    let titled = spans(titles).into_iter().map(|(from, to, title)| {
        let cell = cells.iter().find(|(cell_from, cell_to, _)| *cell_from < to && from < *cell_to);
        (title, cell.unwrap_or_else(|| panic!("{ran:?}")).2.clone())
    });
    titled.collect()
}

/// The cell under `title`.
pub(crate) fn cell(ran: &Ran, policy: &str, title: &str) -> String {
    let row = row(ran, policy);
    row.iter().find(|(name, _)| name == title).unwrap_or_else(|| panic!("{row:?}")).1.clone()
}

fn cells(ran: &Ran, policy: &str, titles: &[&str]) -> Vec<String> {
    titles.iter().map(|title| cell(ran, policy, title)).collect()
}

/// The lines on standard error that begin with the name of the program.
pub(crate) fn notes(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().map(|line| line.strip_prefix("tollgate-inspect: ").unwrap()).collect()
}

impl Service {
    /// Looks at held tokens and at slots in use with the program, before and after a reset.
    async fn sees_and_resets_holds(&self) {
        let (tokens, streams) = (tokens(), Policy::concurrent("streams", 4).unwrap());
        let limiter = &self.limiter;
        let _ = limiter.check("alice", &tokens, 500).await.unwrap();
        let mut open = Vec::new();
        for (policy, cost) in [(&tokens, 30_000), (&tokens, 50_000), (&streams, 1), (&streams, 1), (&streams, 1)] {
            open.push(limiter.hold("alice", policy, cost).await.unwrap().into_result().unwrap());
        }
        let policies = ["--policy", "tokens=100000/min,holds", "--policy", "streams=concurrent:4", "text:alice"];
        let titles = ["limit (as given)", "spent", "held", "open", "available", "ban"];

        let standing = self.inspect("peek", &policies);
        assert_eq!(cells(&standing, "tokens", &titles), ["100000/1m", "500", "80000", "2", "19500", "-"]);
        assert_eq!(cells(&standing, "streams", &titles), ["4 at once", "-", "3", "3", "1", "-"]);
        for policy in ["tokens", "streams"] {
            let until = cell(&standing, policy, "until (last)");
            let seconds: f64 = until.trim_end_matches('s').replace("1m0", "60").parse().unwrap();
            assert!((30.0..=60.0).contains(&seconds), "{until}");
        }
        assert!(standing.stderr.is_empty(), "{standing:?}");

        let removed = self.inspect("reset", &policies);
        assert_eq!(cell(&removed, "tokens", "removed"), "500 of 100000 units, and 80000 held units in 2 open holds");
        assert_eq!(cell(&removed, "streams", "removed"), "3 held units in 3 open holds");
        let notes = notes(&removed);
        assert!(notes.iter().any(|note| note.contains("for up to a second")), "{notes:?}");
        assert!(
            notes.iter().any(|note| note.starts_with("tokens: ") && note.contains("only for what they use beyond"))
        );
        assert!(notes.iter().any(|note| note.starts_with("streams: ") && note.contains("more than 4 may run at once")));

        let fresh = self.inspect("peek", &policies);
        assert_eq!(cells(&fresh, "tokens", &titles), ["100000/1m", "0", "0", "0", "100000", "-"]);
        assert!(fresh.stderr.contains("nothing is counted for this key"), "{fresh:?}");
        assert!(limiter.hold("alice", &streams, 4).await.unwrap().is_allowed(), "the service sees the reset");
        let again = self.inspect("reset", &["--policy", "tokens=100000/min,holds", "text:alice"]);
        assert_eq!(cell(&again, "tokens", "removed"), "nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_holds_and_slots_on_one_server() {
    let server = RedisServer::start();
    Service::on(&server).sees_and_resets_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_holds_and_slots_behind_sentinels() {
    let trio = Trio::start(Duration::from_secs(60));
    let urls: Vec<String> = trio.sentinels.iter().map(RedisServer::url).collect();
    let arguments = ["--sentinel", &urls[0], "--master", Trio::NAME];
    let service = Service::new(&arguments, |builder| builder.open_sentinel(&urls, Trio::NAME).unwrap());
    service.sees_and_resets_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_holds_and_slots_on_a_cluster() {
    let cluster = Cluster::start();
    let url = cluster.nodes[1].url();
    let service = Service::new(&["--cluster", &url], |builder| builder.open_cluster([&url]).unwrap());
    service.sees_and_resets_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_that_units_are_held_beside_a_count_that_was_given_without_holds() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let (tokens, streams) = (tokens(), Policy::concurrent("streams", 4).unwrap());
    let mut open = Vec::new();
    for (policy, cost) in [(&tokens, 30_000), (&tokens, 30_000), (&tokens, 20_000), (&streams, 1)] {
        open.push(service.limiter.hold("alice", policy, cost).await.unwrap().into_result().unwrap());
    }
    let arguments = ["--policy", "tokens=100000/min", "--policy", "streams=4/min", "text:alice"];

    let standing = service.inspect("peek", &arguments);
    assert_eq!(standing.cells("tokens")[..4], ["tokens", "100000/1m", "0", "100000"]);
    let advice = notes(&standing);
    assert!(
        advice[0].starts_with("tokens: 80000 units are held in 3 open holds beside this count")
            && advice[0].contains("add ,holds to its --policy to see them as spent"),
        "{advice:?}"
    );
    assert!(
        advice[1].starts_with("streams: 1 unit is held in 1 open hold of a concurrency limit of this name")
            && advice[1].contains("write --policy streams=concurrent:4"),
        "{advice:?}"
    );
    assert_eq!(advice.len(), 2, "the secret and the name are right, so no word of them: {advice:?}");

    let removed = service.inspect("reset", &arguments);
    assert_eq!(cell(&removed, "tokens", "removed"), "nothing");
    assert!(notes(&removed)[0].contains("add ,holds to its --policy to remove them too"), "{removed:?}");
    assert_eq!(service.limiter.peek("alice", &tokens).await.unwrap().available(), Some(20_000), "they are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_ends_no_hold_whose_time_to_live_has_passed_and_says_that_the_next_check_does() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let holds = HoldSettings::new().with_ttl(Duration::from_micros(1)).with_unsettled_released(true);
    let slots = Policy::per_minute("slots", 10).unwrap().with_holds(holds);
    let hold = service.limiter.hold("alice", &slots, 3).await.unwrap();

    // The service releases such holds. The program is not told so, and a charge would be wrong.
    for _ in 0..2 {
        let standing = service.inspect("peek", &["--policy", "slots=10/min,holds", "text:alice"]);
        assert_eq!(cells(&standing, "slots", &["spent", "held", "open", "until (last)"]), ["0", "3", "0", "-"]);
        assert!(notes(&standing)[0].starts_with("slots: the time-to-live of 1 hold has passed"), "{standing:?}");
    }
    assert_eq!(service.limiter.peek("alice", &slots).await.unwrap().available(), Some(10));
    drop(hold);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_the_blocks_of_leases_and_says_that_processes_may_still_spend_them_after_a_reset() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let leased = Policy::per_minute("per-tenant", 1_000_000).unwrap().with_lease(20_000);
    // The limiter takes a block as it takes any hold.
    let block = service.limiter.hold("alice", &leased, 20_000).await.unwrap();
    let arguments = ["--policy", "per-tenant=1000000/min,lease=20000", "text:alice"];
    let standing = service.inspect("peek", &arguments);
    assert_eq!(cells(&standing, "per-tenant", &["held", "open", "available"]), ["20000", "1", "980000"]);
    let removed = service.inspect("reset", &arguments);
    assert_eq!(cell(&removed, "per-tenant", "removed"), "20000 held units in 1 open hold");
    assert!(notes(&removed).iter().any(|note| note.contains("two blocks of 20000 units")), "{removed:?}");
    drop(block);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_a_value_that_is_no_count_and_no_set_of_holds() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let tokens = tokens();
    let policies = ["--policy", "tokens=100000/min,holds", "text:alice"];
    let redis_key = cell(&service.inspect("peek", &policies), "tokens", "redis key");
    for poisoned in [redis_key.clone(), redis_key.replace(":tokens:", ":tokens(holds):")] {
        server.command(&format!("SADD {poisoned} x"));
        let refused = service.inspect("peek", &policies);
        assert!(refused.code == 1 && refused.stderr.contains("WRONGTYPE"), "{refused:?}");
        assert!(refused.stderr.contains("tokens: a value is no count of tollgate; reset removes it"), "{refused:?}");
        let removed = service.inspect("reset", &policies);
        assert_eq!(cell(&removed, "tokens", "removed"), "a value that is no count of tollgate");
        assert_eq!(service.limiter.peek("alice", &tokens).await.unwrap().available(), Some(100_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_needs_no_permission_for_holds_under_a_plain_limit() {
    let server = RedisServer::start();
    // The smallest set of permissions in the docs of `RedisStore`.
    let rules = "on >password resetkeys ~shop:* resetchannels -@all \
                 +evalsha +eval +script|load +time +getrange +setrange +pexpire +unlink";
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("gate").arg(rules.split_whitespace().collect::<Vec<_>>());
    command.query::<()>(&mut server.connection()).unwrap();
    let url = format!("redis://gate:password@127.0.0.1:{}", server.port());
    let service = Service::new(&["--redis", &url], |builder| builder.open(&url).unwrap());
    let _ = service.limiter.check("alice", &Policy::per_minute("p", 60).unwrap(), 4).await.unwrap();

    for (command, titles) in [("peek", "56"), ("reset", "4 of 60 units")] {
        let ran = service.inspect(command, &["--policy", "p=60/min", "text:alice"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stdout.contains(titles), "{ran:?}");
        assert!(notes(&ran)[0].starts_with("cannot look for open holds beside the counts: "), "{ran:?}");
    }
    let refused = service.inspect("peek", &["--policy", "p=60/min,holds", "text:alice"]);
    assert!(refused.code == 1 && refused.stderr.contains("NOPERM"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_how_the_key_of_an_address_is_written_if_nothing_is_counted() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let hint = |key: &str| {
        let ran = service.inspect("peek", &["--policy", "p=60/min", key]);
        assert!(notes(&ran)[0].starts_with("nothing is counted for this key"), "{ran:?}");
        notes(&ran)[1..].join("\n")
    };
    assert!(hint("text:2001:db8::1").contains("write ip:2001:db8::1"));
    assert!(hint("ip:2001:db8::1").contains("ip/56:2001:db8::1"));
    assert!(hint("ip:203.0.113.7").contains("address of the proxy"));
    assert!(hint("text:alice").is_empty());
}

#[test]
fn inspect_says_what_to_write_instead_of_a_wrong_policy_of_holds_slots_or_leases() {
    for (policy, expected) in [
        ("streams=concurrent", "streams: write the number of slots: streams=concurrent:4"),
        ("streams=concurrent:many", "streams: \"many\" is not a number of slots: write streams=concurrent:4"),
        ("streams=concurrent:0", "streams: "),
        ("streams=concurrent:4,burst=2", "streams: a concurrency limit has no \"burst\": leave it out"),
        ("tokens=100000/min,hold", "tokens: \"hold\" has no value: write hold=VALUE, or holds"),
        ("tokens=100000/min,holds=yes", "tokens: holds has no value: write tokens=RATE,holds"),
        ("tokens=100000/min,ttl=10s", "tokens: leave out ttl: it does not change where units are held"),
        ("tokens=100000/min,holds,shards=2", "tokens: "),
        ("tokens=100000/min,lease=x", "tokens: lease: \"x\" is not a number of units: write lease=20000"),
        ("tokens=100000/min,lease=200000", "tokens: "),
        ("tokens=fast,holds", "tokens: rate: \"fast\" is not a rate"),
        ("tokens=100000/min,holds,holds", "tokens: holds is there twice"),
    ] {
        let ran = crate::inspect::inspect(&["peek", "--redis", "redis://127.0.0.1:1", "--policy", policy, "text:a"]);
        assert_eq!(ran.code, 2, "{policy}: {ran:?}");
        assert!(ran.stderr.contains(&format!("--policy {expected}")), "{policy}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{policy}: {ran:?}");
    }
    let wrong = crate::inspect::inspect(&["peek", "--redis", "redis://127.0.0.1:1", "--policy", "p=fast", "text:a"]);
    assert!(wrong.stderr.contains("concurrent:4"), "{wrong:?}");
}
