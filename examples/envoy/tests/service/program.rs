//! The program itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::{fs, process::Command, time::Duration};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Channel;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::support::program::{Program, configuration};
use crate::support::quotas::{Quotas, Told, arrival};
use crate::support::{domain, entries, request};
use crate::support::{ports::free_port, redis_server::Directory};

async fn channel(address: &str) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

fn limits() -> (Directory, String) {
    configuration(&domain(&[
        "{ key: k, rate_limit: { unit: year, requests_per_unit: 2 } }",
        "{ key: user, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 2 } }",
        "{ key: path, value: f*, value_to_metric: true, rate_limit: { unit: year, requests_per_unit: 2 } }",
    ]))
}

#[tokio::test]
async fn a_signal_ends_the_program_cleanly_and_health_says_so_before() {
    let (_folder, path) = limits();
    let mut program = Program::start(&["--config", &path]);
    let url = format!("http://{}", program.address);
    let mut health = HealthClient::new(channel(&program.address).await);
    let services =
        ["envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];
    for service in services.into_iter().chain([""]) {
        let request = HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request).await.unwrap().get_ref().status, 1, "{service}");
    }
    let mut changes = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(changes.message().await.unwrap().unwrap().status, 1);
    let mut client = RateLimitServiceClient::connect(url).await.unwrap();
    client.should_rate_limit(request("test", [entries([("k", "v")])])).await.unwrap();
    program.signal("-TERM");
    assert_eq!(changes.message().await.unwrap().unwrap().status, 2, "not serving");
    drop((changes, health, client));
    let (status, stderr) = (program.wait(), program.stderr());
    assert!(status.success() && !stderr.contains("panicked"), "{status} {stderr}");
}

#[tokio::test]
async fn reflection_describes_the_service() {
    use tonic_reflection::pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
    };
    let (_folder, path) = limits();
    let program = Program::start(&["--config", &path]);
    let mut client = ServerReflectionClient::new(channel(&program.address).await);
    let symbol = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    let requests = [MessageRequest::ListServices(String::new()), MessageRequest::FileContainingSymbol(symbol.clone())];
    let requests =
        requests.map(|message| ServerReflectionRequest { host: String::new(), message_request: Some(message) });
    let mut replies = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let MessageResponse::ListServicesResponse(list) =
        replies.message().await.unwrap().unwrap().message_response.unwrap()
    else {
        panic!("no list")
    };
    for name in [&symbol, "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"] {
        assert!(list.service.iter().any(|service| service.name == name), "{list:?}");
    }
    let reply = replies.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(reply, MessageResponse::FileDescriptorResponse(_)), "{reply:?}");
}

#[tokio::test]
async fn metrics_have_no_value_of_a_client_unless_a_rule_asks_for_them() {
    let (_folder, path) = limits();
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let program = Program::start(&["--config", &path, "--metrics", &metrics.to_string()]);
    let mut client = RateLimitServiceClient::connect(format!("http://{}", program.address)).await.unwrap();
    // A long value counts as another one.
    let long = entries([("user", &"x".repeat(300))]);
    client.should_rate_limit(request("test", [long])).await.unwrap();
    for number in 0..1_200 {
        let value = format!("secret{number}");
        let call = [entries([("k", &value)]), entries([("user", &value)]), entries([("other", &value)])];
        client.should_rate_limit(request("test", call)).await.unwrap();
    }
    for _ in 0..3 {
        let call = [entries([("path", "f1")])];
        client.should_rate_limit(request("test", call)).await.unwrap();
    }
    // Another configuration does not make room for other values.
    let yaml = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{yaml}  - {{ key: more }}\n")).unwrap();
    while !fetch(metrics, "/metrics").contains("tollgate_envoy_config_loads_total{outcome=\"accepted\"} 1") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.should_rate_limit(request("test", [entries([("user", "late")])])).await.unwrap();
    let text = fetch(metrics, "/metrics");
    assert!(!text.contains("user_late") && !text.contains("xxx"));
    let has = |line: &str| assert!(text.contains(line), "{line} is not in\n{}", &text[..text.len().min(6_000)]);
    has("tollgate_envoy_descriptors_total{domain=\"test\",rule=\"k\",outcome=\"ok\"} 1200");
    has("tollgate_envoy_descriptors_total{domain=\"test\",rule=\"user_secret7\",outcome=\"ok\"} 1");
    has("tollgate_envoy_descriptors_total{domain=\"test\",rule=\"user.other\",outcome=\"ok\"} 202");
    has("tollgate_envoy_descriptors_total{domain=\"test\",rule=\"path_f1\",outcome=\"ok\"} 2");
    has("tollgate_envoy_descriptors_total{domain=\"test\",rule=\"path_f1\",outcome=\"over_limit\"} 1");
    has("tollgate_envoy_calls_total{outcome=\"over_limit\"} 1");
    has("tollgate_envoy_unmatched_descriptors_total 1200");
    has("tollgate_decisions_total{policy=\"k\",outcome=\"allowed\"} 1200");
    assert!(!text.contains("rule=\"k_"), "a value of a client");
    assert_eq!(fetch(metrics, "/healthz"), "ok\n");
}

#[tokio::test]
async fn metrics_count_the_blocks_of_envoys() {
    let rule = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }";
    let (_folder, path) = configuration(&domain(&[rule]));
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let program = Program::start(&["--config", &path, "--metrics", &metrics.to_string()]);
    let mut envoy = Quotas::open(&program.address).await;
    assert_eq!(envoy.tenant("secret", 0, 1).await, Told::Block(8));
    assert_eq!(envoy.tenant("secret", 3, 0).await, Told::Block(30));
    arrival().await;
    envoy.send("test", &[(&[("tenant", "secret")], 3, 0), (&[("secret", "a")], 0, 1)]);
    envoy.answer().await.unwrap();
    let text = fetch(metrics, "/metrics");
    for line in [
        "tollgate_envoy_quota_streams 1",
        "tollgate_envoy_quota_blocks_total 3",
        "tollgate_envoy_quota_unused_units_total 2",
        "tollgate_envoy_quota_refused_total{reason=\"no_rule\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(text.contains("tollgate_envoy_quota_units_total") && !text.contains("secret"));
    drop(envoy);
    while !fetch(metrics, "/metrics").contains("tollgate_envoy_quota_streams 0") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_wrong_configuration_ends_the_program_with_its_mistakes() {
    let (_folder, path) = configuration("domain: test\ndescriptors: [{ kex: 1 }]");
    let output = Command::new(env!("CARGO_BIN_EXE_tollgate-envoy")).args(["--config", &path]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(stderr.contains("limits.yaml:2:17: kex is no field here"), "{stderr}");
}

#[test]
fn a_secret_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let (_folder, path) = limits();
    let secret = std::ffi::OsStr::from_bytes(b"\xff");
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate-envoy"));
    // Another mistake ends the program if the secret does not.
    let program = program.args(["--config", &path, "--listen", "192.0.2.1:1"]).env("TOLLGATE_KEY_SECRET", secret);
    let output = program.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("TOLLGATE_KEY_SECRET"), "{stderr}");
}
