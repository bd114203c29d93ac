//! What the program reports about a wrong setup.

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::support::program::{Program, configuration};
use crate::support::quotas::{Quotas, Told};
use crate::support::{domain, entries, passed, request};

#[tokio::test]
async fn one_cause_of_many_warnings_leaves_room_for_others() {
    let (_folder, path) = configuration(&domain(&[
        "{ key: plain, rate_limit: { unit: hour, requests_per_unit: 10 } }",
        "{ key: slots, rate_limit: { concurrent: 2 } }",
    ]));
    let program = Program::start(&["--config", &path]);
    for number in 0..100 {
        let mut envoy = Quotas::open(&program.address).await;
        envoy.send(&format!("unknown{number}"), &[(&[("tenant", "a")], 0, 1)]);
        envoy.end().await;
    }
    let mut envoy = Quotas::open(&program.address).await;
    for number in 0..100 {
        let key = format!("wrong{number}");
        envoy.send("test", &[(&[(&key, "secret")], 0, 1)]);
        assert_eq!(envoy.answer().await.unwrap()[&format!("{key}=secret")], Told::DenyAll);
    }
    envoy.send("test", &[(&[("plain", "secret")], 0, 1)]);
    assert_eq!(envoy.answer().await.unwrap()["plain=secret"], Told::DenyAll);
    let mut client = RateLimitServiceClient::connect(format!("http://{}", program.address)).await.unwrap();
    for number in 0..100 {
        let call = request(&format!("unknown{}", number % 2), [entries([("tenant", "secret")])]);
        assert!(passed(client.should_rate_limit(call).await.unwrap().get_ref()));
    }
    for _ in 0..3 {
        for entries in [
            entries([("slots", "secret"), ("hold", "secret"), ("settle", "secret")]),
            entries([("slots", "secret"), ("", "")]),
            entries([("slots", "secret")]),
        ] {
            client.should_rate_limit(request("test", [entries])).await.unwrap();
        }
    }
    let stderr = program.stderr_with("a concurrency limit needs");
    for (text, times) in [
        ("are refused: no file has this domain", 16),
        ("calls of domain \"unknown0\" pass without a limit: no file has this domain; write one", 1),
        ("pass without a limit", 2),
        ("no rule has these entries", 16),
        ("others with this cause are not reported", 2),
        ("\"plain\" are refused: their rule has no lease", 1),
        ("calls are refused: a descriptor has both a hold and a settle entry", 1),
        ("calls are refused: a concurrency limit needs a descriptor with a hold entry", 1),
        ("secret", 0),
    ] {
        assert_eq!(stderr.matches(text).count(), times, "{text}\n{stderr}");
    }
}
