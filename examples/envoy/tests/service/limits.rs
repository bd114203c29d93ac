//! What the fields of a rule do.

use crate::support::{Descriptor, Service, domain, entries};

#[tokio::test]
async fn a_token_bucket_has_a_burst() {
    let rule = "{ key: k, rate_limit: { unit: day, requests_per_unit: 5, algorithm: token-bucket, burst: 8 } }";
    let service = Service::start(&domain(&[rule])).await;
    assert_eq!(service.passed(12, entries([("k", "v")])).await, 8);
}

#[tokio::test]
async fn a_lease_passes_no_more_than_the_limit() {
    let rule = "{ key: k, rate_limit: { unit: day, requests_per_unit: 500, lease: 50 } }";
    let service = Service::start(&domain(&[rule])).await;
    assert_eq!(service.passed(600, entries([("k", "v")])).await, 500);
    service.stop().await;
}

#[tokio::test]
async fn an_unlimited_rule_has_the_largest_number_left() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { unlimited: true } }"])).await;
    let reply = service.reply([entries([("k", "v")]).hits(u64::MAX)]).await;
    assert_eq!((reply.statuses[0].limit_remaining, reply.statuses[0].code), (u32::MAX, 1));
}

#[tokio::test]
async fn a_concurrency_limit_without_a_hold_entry_passes_nothing() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { concurrent: 2 } }"])).await;
    assert!(!service.passes([entries([("k", "v")])]).await);
    assert!(service.passes([entries([("k", "v")]).hits(0)]).await, "only asks");
}
