//! Services and stores that stop, freeze and come back.

use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::proxy::{Calls, Envoy};
use crate::support::program::{Program, configuration};
use crate::support::{domain, redis_server::RedisServer};

const RULE: &str = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 3 } }";

/// Waits until a request has this status.
async fn until(envoy: &Envoy, client: &reqwest::Client, tenant: &str, status: u16) {
    let start = Instant::now();
    loop {
        let found = envoy.status(client, tenant).await;
        if found == status {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{tenant} still gets {found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_decides_while_the_service_is_stopped_or_frozen() {
    let backend = Backend::start().await;
    let (_folder, path) = configuration(&domain(&[RULE]));
    let mut program = Program::start(&["--config", &path]);
    let address = program.address.clone();
    let start =
        |denies| Envoy::start(&address, backend.address, Calls { timeout: "0.25s", denies, ..Calls::default() });
    let (Some(denying), Some(passing)) = (start(true), start(false)) else { return };
    let client = reqwest::Client::new();
    until(&denying, &client, "a", 200).await;
    until(&passing, &client, "a", 429).await;

    program.signal("-STOP");
    // The threads of the program stop one after the other.
    until(&denying, &client, "a", 500).await;
    for _ in 0..3 {
        let start = Instant::now();
        assert_eq!(denying.status(&client, "a").await, 500);
        assert_eq!(passing.status(&client, "a").await, 200);
        assert!(start.elapsed() < Duration::from_secs(10), "Envoy does not wait");
    }
    program.signal("-CONT");
    until(&denying, &client, "a", 429).await;

    program.signal("-KILL");
    program.wait();
    assert_eq!(denying.status(&client, "a").await, 500);
    assert_eq!(passing.status(&client, "a").await, 200);
    // Counts in memory begin anew.
    let _program = Program::start_at(&address, &["--config", &path]);
    until(&denying, &client, "b", 200).await;
    until(&passing, &client, "b", 429).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_under_load_ends_with_the_calls_in_flight() {
    let backend = Backend::start().await;
    let (_folder, path) =
        configuration(&domain(&["{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 9999 } }"]));
    let mut program = Program::start(&["--config", &path]);
    let Some(envoy) = Envoy::start(&program.address, backend.address, Calls::default()) else { return };
    let client = reqwest::Client::new();
    let load = async {
        for _ in 0..200 {
            // After the stop, Envoy has no connection.
            let status = envoy.status(&client, "a").await;
            assert!([200, 500].contains(&status), "{status}");
        }
    };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        program.signal("-TERM");
    };
    tokio::join!(load, stop);
    assert!(program.wait().success());
    assert!(!program.stderr().contains("panicked"), "{}", program.stderr());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_policy_of_a_rule_decides_while_redis_is_away() {
    let backend = Backend::start().await;
    let mut redis = RedisServer::start();
    let rule = |value: &str, policy: &str| {
        format!(
            "{{ key: tenant, value: {value}, rate_limit: {{ unit: hour, requests_per_unit: 20, on_store_failure: {policy} }} }}"
        )
    };
    let rules = [("open", "open"), ("closed", "closed"), ("local", "local")].map(|(value, policy)| rule(value, policy));
    let (_folder, path) = configuration(&domain(&rules.each_ref().map(String::as_str)));
    let program =
        Program::start(&["--config", &path, "--redis", &redis.url(), "--instances", "2", "--deadline", "500ms"]);
    let Some(envoy) = Envoy::start(&program.address, backend.address, Calls::default()) else { return };
    let client = reqwest::Client::new();
    for tenant in ["open", "closed", "local"] {
        until(&envoy, &client, tenant, 200).await;
    }
    let away = async |envoy: &Envoy| {
        assert_eq!(envoy.status(&client, "open").await, 200);
        // Unavailable, so `failure_mode_deny` decides.
        assert_eq!(envoy.status(&client, "closed").await, 500);
        let mut admitted = 0;
        for _ in 0..15 {
            admitted += u32::from(envoy.status(&client, "local").await == 200);
        }
        assert!(admitted <= 10, "no more than the share of this instance: {admitted}");
    };
    redis.signal("STOP");
    away(&envoy).await;
    redis.signal("CONT");
    until(&envoy, &client, "closed", 200).await;
    redis.kill();
    away(&envoy).await;
    redis.restart();
    until(&envoy, &client, "closed", 200).await;
}
