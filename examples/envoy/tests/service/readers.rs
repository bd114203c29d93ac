//! Readers of the program's lines that have gone, or that stand still: a log collector that has ended, a full pipe.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::time::sleep;
use tonic::transport::Channel;

use crate::support::program::configuration;
use crate::support::quotas::{Quotas, Told};
use crate::support::{Descriptor, domain, entries, passed, request};

/// A program with output that is not read. It ends when this value is dropped.
struct Unread {
    process: Child,
    address: String,
}

impl Unread {
    fn start(path: &str) -> (Self, BufReader<ChildStdout>, ChildStderr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-envoy"));
        let command = command.args(["--config", path, "--listen", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut line, stderr) = (String::new(), process.stderr.take().unwrap());
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("Listening on ").unwrap().to_owned();
        (Self { process, address }, stdout, stderr)
    }

    async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::connect(format!("http://{}", self.address)).await.unwrap()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn limit(units: u32) -> String {
    domain(&[
        &format!("{{ key: k, rate_limit: {{ unit: year, requests_per_unit: {units} }} }}"),
        "{ key: slots, rate_limit: { concurrent: 2 } }",
    ])
}

/// Waits until the limit is `units`.
async fn until_limit(client: &mut RateLimitServiceClient<Channel>, units: u32) {
    let start = Instant::now();
    let mut left = None;
    while left != Some(units) {
        assert!(start.elapsed() < Duration::from_secs(30), "{left:?} units, not {units}");
        sleep(Duration::from_millis(50)).await;
        let reply = client.should_rate_limit(request("test", [entries([("k", "v")]).hits(0)])).await.unwrap();
        left = Some(reply.get_ref().statuses[0].limit_remaining);
    }
}

#[tokio::test]
async fn without_a_reader_of_its_lines_the_service_answers_and_follows_its_configuration() {
    let (_folder, path) = configuration(&limit(10));
    let (program, stdout, stderr) = Unread::start(&path);
    drop((stdout, stderr));
    let mut client = program.client().await;
    // Each of these is reported.
    let slot = client.should_rate_limit(request("test", [entries([("slots", "a")])])).await;
    assert!(!passed(slot.unwrap().get_ref()));
    let mut envoy = Quotas::open(&program.address).await;
    envoy.send("test", &[(&[("wrong", "a")], 0, 1)]);
    assert_eq!(envoy.answer().await.unwrap()["wrong=a"], Told::DenyAll);
    for units in [9, 8] {
        fs::write(&path, "domain: [").unwrap();
        sleep(Duration::from_millis(700)).await;
        fs::write(&path, limit(units)).unwrap();
        until_limit(&mut client, units).await;
    }
}

#[tokio::test]
async fn a_reader_that_stands_still_keeps_no_call() {
    let (_folder, path) = configuration(&limit(10));
    let (program, _stdout, _stderr) = Unread::start(&path);
    // More than a pipe has room for: each sign is ten in a line.
    let sign = "\u{10ffff}".repeat(60);
    let mut envoy = Quotas::open(&program.address).await;
    for bucket in 0..16 {
        let keys: Vec<_> = (0..8).map(|key| format!("{bucket:02}{key}{sign}")).collect();
        let entries: Vec<_> = keys.iter().map(|key| (key.as_str(), "a")).collect();
        envoy.send("test", &[(&entries, 0, 1)]);
        assert!(envoy.answer().await.unwrap().values().eq([&Told::DenyAll]), "{bucket}");
    }
    let mut client = program.client().await;
    let slot = client.should_rate_limit(request("test", [entries([("slots", "a")])])).await;
    assert!(!passed(slot.unwrap().get_ref()));
    fs::write(&path, "domain: [").unwrap();
    sleep(Duration::from_millis(700)).await;
    fs::write(&path, limit(9)).unwrap();
    until_limit(&mut client, 9).await;
}
