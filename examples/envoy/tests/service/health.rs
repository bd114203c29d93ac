//! What probes see while Redis is away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::support::program::{Program, configuration};
use crate::support::{domain, entries, passed, request};
use crate::support::{ports::free_port, redis_server::RedisServer};

/// The status and the body of a response.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn until_ready(address: SocketAddr, status: u16) -> String {
    let start = Instant::now();
    loop {
        let (found, body) = get(address, "/readyz");
        if found == status {
            return body;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "still {found}: {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_redis_is_alive_and_serving_and_not_ready() {
    let mut redis = RedisServer::start();
    let rule = |policy| {
        format!("{{ key: {policy}, rate_limit: {{ unit: year, requests_per_unit: 20, on_store_failure: {policy} }} }}")
    };
    let (_folder, path) = configuration(&domain(&[&rule("open"), &rule("closed")]));
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let arguments =
        ["--config", &path, "--redis", &redis.url(), "--metrics", &metrics.to_string(), "--deadline", "5000ms"];
    let mut program = Program::start(&arguments);
    let url = format!("http://{}", program.address);
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let mut client = RateLimitServiceClient::new(channel);
    let mut result = async |key| {
        let reply = client.should_rate_limit(request("test", [entries([(key, "v")])])).await;
        reply.map(|reply| passed(reply.get_ref())).map_err(|status| status.code())
    };
    assert_eq!(get(metrics, "/readyz"), (200, "ok\n".to_owned()));
    for freezes in [false, true] {
        if freezes {
            redis.signal("STOP")
        } else {
            redis.kill()
        }
        let body = until_ready(metrics, 503);
        assert!(body.contains("no verdict") && !body.contains("127.0.0.1"), "{body}");
        // So neither a restart nor a load balancer takes away what the failure policies promise.
        assert_eq!(get(metrics, "/healthz"), (200, "ok\n".to_owned()));
        for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            assert_eq!(health.check(request).await.unwrap().get_ref().status, 1, "{service}");
        }
        assert_eq!(result("open").await, Ok(true));
        assert_eq!(result("closed").await, Err(Code::Unavailable));
        if freezes {
            redis.signal("CONT")
        } else {
            redis.restart()
        }
        assert_eq!(until_ready(metrics, 200), "ok\n");
        // A breaker may be open for a moment longer.
        let start = Instant::now();
        while result("closed").await != Ok(true) {
            assert!(start.elapsed() < Duration::from_secs(30));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // While the last calls end, no new ones should come.
    let held = health.watch(HealthCheckRequest::default()).await.unwrap();
    program.signal("-TERM");
    assert_eq!(until_ready(metrics, 503), "the service stops\n");
    drop((held, health, client));
    assert!(program.wait().success());
}

#[test]
fn a_service_in_memory_is_ready_at_once() {
    let (_folder, path) = configuration(&domain(&["{ key: k }"]));
    let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let _program = Program::start(&["--config", &path, "--metrics", &metrics.to_string()]);
    assert_eq!(get(metrics, "/readyz"), (200, "ok\n".to_owned()));
}
