//! `examples/server`: its limits from a file, and the changes of the file while it runs.

use std::{fs, os::unix::fs::symlink, process::Command, time::Instant};

use crate::built::PROGRAMS;
use crate::running::{Response, Server};
use crate::support::{ports::free_port, print_line, redis_server::Directory, until};

const LIMITS: &str = include_str!("../../../examples/server/limits.toml");

impl Response {
    /// Without what depends on the instant of the request.
    fn without_times(mut self) -> Self {
        self.fields.remove("date");
        // One of two servers may be asked a second later than the other.
        if let Some(field) = self.fields.get_mut("ratelimit") {
            *field = field.split(";t=").next().unwrap().to_owned();
        }
        if let Some(seconds) = self.fields.get_mut("retry-after") {
            *seconds = "present".to_owned();
        }
        if let Some((body, _)) = self.body.split_once("\"reset\":") {
            self.body = body.to_owned();
            self.fields.remove("content-length");
        }
        self
    }
}

/// The limits of the file with another rate of the policy `per-client`.
fn with_rate(rate: &str) -> String {
    let changed = LIMITS.replace("rate = \"60/min\"", &format!("rate = \"{rate}\""));
    assert_ne!(changed, LIMITS);
    changed
}

#[test]
fn the_limits_file_of_the_example_server_is_the_twin_of_its_defaults() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/server/limits.toml");
    let redis = format!("redis://127.0.0.1:{}", free_port());
    // In memory, and with a Redis that is away, so that the failure policies decide.
    for store in [&[][..], &["--redis", &redis]] {
        let servers = [Server::start(store), Server::start(&[store, &["--config", file]].concat())];
        let mut statuses = Vec::new();
        for (method, path, times) in [
            ("GET", "/quota", 1),
            ("GET", "/watch", 2),
            ("POST", "/login", 7),
            ("GET", "/login", 1),
            ("GET", "/quota", 1),
            ("GET", "/search", 6),
            ("GET", "/nowhere", 2),
            ("GET", "/watch", 8),
            ("GET", "/healthz", 1),
        ] {
            for _ in 0..times {
                let [default, from_file] = servers.each_ref().map(|server| server.fetch(method, path).without_times());
                assert_eq!(default, from_file, "{method} {path}");
                statuses.push(default.status);
            }
        }
        let expected: &[u16] = if store.is_empty() { &[200, 404, 405, 429] } else { &[200, 404, 405, 503] };
        statuses.sort_unstable();
        statuses.dedup();
        assert_eq!(statuses, expected, "every outcome was compared");
    }
}

#[test]
fn the_example_server_follows_its_limits_file_and_keeps_the_old_limits_when_a_file_is_refused() {
    let files = Directory::new();
    let file = files.write("limits.toml", LIMITS);
    let server = Server::start(&["--config", &file]);
    assert_eq!(server.policy(), "\"per-client\";q=60;w=60");

    // An editor writes another file and renames it.
    fs::rename(files.write("limits.toml.new", with_rate("1000/min")), &file).unwrap();
    let changed = Instant::now();
    until("the changed limit is in force", || server.policy() == "\"per-client\";q=1000;w=60");
    print_line(&format!("example server: a changed file was in force after {:?}", changed.elapsed()));
    let spent = 1_000 - server.fetch("GET", "/watch").remaining();
    assert!(spent >= 3, "requests that were counted before the change still count: {spent}");

    let broken = with_rate("fast").replace("cost = 10", "cots = 10").replace("\"login\"]", "\"signin\"]");
    files.write("limits.toml", broken);
    until("the refused file is reported", || server.stderr().contains("are refused"));
    let report = server.stderr();
    let line = report.lines().find(|line| line.contains("are refused")).unwrap();
    for place in ["policies.per-client.rate", "routes.\"/search\".cots", "routes.\"POST /login\".policies"] {
        // The log may escape quotes.
        assert!(line.replace('\\', "").contains(place), "{place}: {line}");
    }
    assert_eq!(server.policy(), "\"per-client\";q=1000;w=60", "the old limits stay in force");

    fs::remove_file(&file).unwrap();
    until("the missing file is reported", || server.stderr().contains("cannot be read"));
    assert_eq!(server.policy(), "\"per-client\";q=1000;w=60", "the old limits stay in force");

    files.write("limits.toml", with_rate("2000/min"));
    until("the repaired file is in force", || server.policy() == "\"per-client\";q=2000;w=60");
    assert_eq!(server.stderr().matches("are refused").count(), 1, "{}", server.stderr());
    assert_eq!(server.stderr().matches("cannot be read").count(), 1, "{}", server.stderr());

    let metrics = server.fetch("GET", "/metrics").body;
    assert!(metrics.contains("tollgate_limits_changes_total{outcome=\"refused\"} 1\n"), "{metrics}");
}

/// Kubernetes mounts a ConfigMap as links into a directory whose link `..data` it replaces.
#[test]
fn the_example_server_follows_a_config_map() {
    let volume = Directory::new();
    for (directory, limits) in [("..1", LIMITS.to_owned()), ("..2", with_rate("90/min"))] {
        fs::create_dir(volume.path(directory)).unwrap();
        volume.write(&format!("{directory}/limits.toml"), limits);
    }
    symlink("..1", volume.path("..data")).unwrap();
    symlink("..data/limits.toml", volume.path("limits.toml")).unwrap();
    let server = Server::start(&["--config", &volume.path("limits.toml")]);
    assert_eq!(server.policy(), "\"per-client\";q=60;w=60");

    symlink("..2", volume.path("..data_tmp")).unwrap();
    fs::rename(volume.path("..data_tmp"), volume.path("..data")).unwrap();
    fs::remove_dir_all(volume.path("..1")).unwrap();
    let swapped = Instant::now();
    until("the new ConfigMap is in force", || server.policy() == "\"per-client\";q=90;w=60");
    print_line(&format!("example server: a swapped ConfigMap was in force after {:?}", swapped.elapsed()));
    assert!(!server.stderr().contains("cannot be read"), "{}", server.stderr());
}

#[test]
fn the_example_server_does_not_start_with_a_file_that_it_cannot_use() {
    let files = Directory::new();
    let broken = files.write("broken.toml", with_rate("fast").replace("cost = 10", "cost = 0"));
    let syntax = files.write("syntax.toml", "policies = [");
    let missing = files.path("missing.toml");
    for (arguments, expected) in [
        (&["--config", &broken][..], &["policies.per-client.rate: ", "routes.\"/search\".cost: "][..]),
        (&["--config", &syntax], &["syntax.toml", "line 1"]),
        (&["--config", &missing], &["missing.toml cannot be read"]),
        (&["--config", &broken, "--limit", "5"], &["--limit and --config exclude one another"]),
    ] {
        let output = Command::new(&PROGRAMS.server).args(["--listen", "127.0.0.1:0"]).args(arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(output.stdout.is_empty());
        assert!(expected.iter().all(|text| stderr.contains(text)), "{expected:?}: {stderr}");
    }
}
