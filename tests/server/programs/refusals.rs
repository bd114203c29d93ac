//! "Customer X gets 429": from the customer to the limit and the route, and from a log line back to the counts.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::redis_server::{Directory, RedisServer};
use crate::{inspect::inspect, running::Server};

const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/server/limits.toml");

/// The fingerprint in the Redis key of a row of `peek`: `tollgate:{$FINGERPRINT}:login:l5:1m`.
fn fingerprint(redis_key: &str) -> &str {
    redis_key.split_once("{$").and_then(|(_, rest)| rest.split_once('}')).unwrap().0
}

/// The log line of the server that contains all of `parts`.
fn logged(server: &Server, parts: &[&str]) -> String {
    let start = Instant::now();
    loop {
        let log = server.stdout();
        if let Some(line) = log.lines().find(|line| parts.iter().all(|part| line.contains(part))) {
            return line.to_owned();
        }
        // The server writes a line before it answers, and a thread of this process reads it.
        assert!(start.elapsed() < Duration::from_secs(10), "{parts:?} are not in\n{log}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn law_10_inspect_and_the_logs_of_all_instances_lead_to_each_other_without_the_key() {
    let redis = RedisServer::start();
    let (url, files) = (redis.url(), Directory::new());
    let secret = files.write("key-secret", "an example of a secret of the keys\n");
    let options = ["--redis", &url, "--deadline", "5s", "--secret-file", &secret, "--log"];
    let instances = [Server::start(&options), Server::start(&options)];
    for number in 0..8 {
        instances[number % 2].fetch("POST", "/login");
    }
    let common = ["--redis", &url, "--config", LIMITS];
    let peek = |arguments: &[&str]| inspect(&[&["peek"], &common[..], arguments].concat());

    // From the customer to the log lines.
    let customer = peek(&["--secret-file", &secret, "ip:127.0.0.1"]);
    let login = customer.cells("login");
    assert_eq!(login[..4], ["login", "5/1m", "5", "0"]);
    let key = fingerprint(login.last().unwrap());
    for instance in &instances {
        let line = logged(instance, &["tollgate::decision: denied", &format!("key={key} ")]);
        assert!(line.contains("policy=\"login\"") && line.contains("route=\"/login\" method=\"POST\""), "{line}");
        assert!(!instance.stdout().contains("key=127.0.0.1"));
    }

    // From the list of the most refused, or from a log line, to the counts. This needs no secret.
    let lists: Vec<_> = instances.iter().map(|instance| instance.fetch("GET", "/refused").body).collect();
    let refusals = lists.iter().map(|list| list.split(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(refusals, 3, "{lists:?}");
    for list in &lists {
        assert!(list.ends_with(&format!(" policy=\"login\" key={key} POST /login\n")), "{list:?}");
    }
    let by_fingerprint = format!("fingerprint:{key}");
    assert_eq!(peek(&[&by_fingerprint]).cells("login")[..4], ["login", "5/1m", "5", "0"]);
    let reset = inspect(&[&["reset"], &common[..], &[&by_fingerprint]].concat());
    assert!(reset.stdout.contains("5 of 5 units"), "{reset:?}");
    assert_eq!(peek(&["--secret-file", &secret, "ip:127.0.0.1"]).cells("login")[..4], ["login", "5/1m", "0", "5"]);
}

#[test]
fn inspect_refuses_a_fingerprint_that_cannot_lead_to_a_count() {
    let key = "fingerprint:OYcgTFRMZSMUc535ws0X5w";
    for (arguments, expected) in [
        (&["--policy", "p=60/min", key, "text:alice"][..], "write it without other KEYs"),
        (&["--policy", "p=60/min", "fingerprint:alice"], "write the 22 characters of `key` in a log line"),
        (&["--policy", "p=60/min,shards=4", key], "policy p has shards"),
    ] {
        let ran = inspect(&[&["peek", "--redis", "redis://127.0.0.1:1"], arguments].concat());
        assert!(ran.code == 2 && ran.stderr.contains(expected), "{ran:?}");
    }
}
