//! Floods of HTTP/2 streams.

use std::{fs, time::Duration};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::{task::JoinSet, time::timeout};

use crate::support::program::{Program, configuration};
use crate::support::{domain, entries, passed, print_line, request};

/// The resident memory of a process, in MB.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_or_never_read_leave_the_service_usable() {
    let yaml = domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 5 } }"]);
    let (_folder, path) = configuration(&yaml);
    let program = Program::start(&["--config", &path]);
    let url = format!("http://{}", program.address);
    let mut floods = JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        floods.spawn(async move {
            for _ in 0..50 {
                let Ok(client) = RateLimitServiceClient::connect(url.clone()).await else { continue };
                let mut calls = JoinSet::new();
                for number in 0..200 {
                    let mut client = client.clone();
                    let call = request("test", [entries([("tenant", &"x".repeat(100 * (number % 20)))])]);
                    // Dropped in the middle, which resets the stream.
                    calls.spawn(async move {
                        drop(timeout(Duration::from_micros(300), client.should_rate_limit(call)).await)
                    });
                }
                calls.join_all().await;
            }
        });
    }
    floods.join_all().await;
    let mut client = RateLimitServiceClient::connect(url).await.unwrap();
    let mut admitted = 0;
    for _ in 0..8 {
        let reply = client.should_rate_limit(request("test", [entries([("tenant", "v")])])).await.unwrap();
        admitted += u32::from(passed(reply.get_ref()));
    }
    assert_eq!(admitted, 5);
    let memory = memory(program.id());
    print_line(&format!("after 80000 streams, most of them reset: {memory} MB"));
    assert!(memory < 300, "{memory} MB");
    assert!(!program.stderr().contains("panicked"), "{}", program.stderr());
}
