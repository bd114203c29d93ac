//! Refusals as clients see them.

use crate::backend::Backend;
use crate::proxy::{Calls, Envoy};
use crate::support::{Service, domain};

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_gets_429_with_its_fields() {
    let yaml = domain(&["{ key: tenant, rate_limit: { unit: minute, requests_per_unit: 2, name: per-tenant } }"]);
    let (service, backend) = (Service::start(&yaml).await, Backend::start().await);
    let Some(envoy) = Envoy::start(&service.address.to_string(), backend.address, Calls::default()) else { return };
    let client = reqwest::Client::new();
    let mut responses = Vec::new();
    for _ in 0..3 {
        responses.push(envoy.get(&client, &[("x-tenant", "a")]).await);
    }
    let statuses: Vec<_> = responses.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let field = |number: usize, name: &str| {
        let value = responses[number].headers().get(name);
        value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    assert_eq!(field(0, "x-ratelimit-limit"), "2, 2;w=60;name=\"per-tenant\"");
    assert_eq!([0, 1, 2].map(|number| field(number, "x-ratelimit-remaining")), ["1", "0", "0"]);
    assert_eq!(field(0, "ratelimit-policy"), "\"per-tenant\";q=2;w=60");
    let [reset, seconds, millis] = ["x-ratelimit-reset", "retry-after", "retry-after-ms"]
        .map(|name| field(2, name).parse::<u64>().unwrap_or_else(|_| panic!("{name}: {:?}", responses[2])));
    assert!((55..=60).contains(&seconds) && (55_000..=60_000).contains(&millis), "{seconds} {millis}");
    assert!(reset.abs_diff(seconds) <= 1, "{reset}");
    assert_eq!(field(2, "x-envoy-ratelimited"), "true");
    assert_eq!(field(0, "retry-after"), "");
    // Another tenant has a budget of its own, and a request without a tenant has no limit.
    assert_eq!(envoy.status(&client, "b").await, 200);
    assert_eq!(envoy.get(&client, &[]).await.status(), 200);
}
