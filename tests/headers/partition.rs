//! The parameters `qu`, the unit, and `pk`, the partition key.

use axum::Router;
use tollgate::{HeaderKey, Key, Policy, RateLimitLayer, headers::PartitionKeys};

use crate::support::app::{app, limiter, per_minute};
use crate::support::{http::get_with, says};

const SECRET: &str = "0123456789abcdef";

fn keyed(policy: Policy) -> Router {
    app(RateLimitLayer::new(limiter(), policy, HeaderKey::new("x-tenant").unwrap()))
}

async fn fields(app: &Router, tenant: &str) -> (String, String) {
    let reply = get_with(app, "/", &[("x-tenant", tenant)]).await;
    (reply.header("ratelimit-policy").unwrap(), reply.header("ratelimit").unwrap())
}

/// The value of `pk`, which must be the same in both headers.
async fn partition(app: &Router, tenant: &str) -> String {
    let (policy, limit) = fields(app, tenant).await;
    let (_, partition) = policy.split_once(";pk=").unwrap();
    assert!(limit.ends_with(&format!(";pk={partition}")), "{limit}");
    partition.to_owned()
}

#[tokio::test]
async fn a_unit_is_sent_unless_it_is_requests() {
    for (unit, policy) in [("content-bytes", r#""p";q=5;qu="content-bytes";w=60"#), ("requests", r#""p";q=5;w=60"#)] {
        let app = keyed(per_minute(5).with_unit(unit));
        assert_eq!(fields(&app, "a").await, (policy.into(), r#""p";r=4;t=60"#.into()));
    }
}

/// A policy keeps its `ratelimit-policy` value; a changed copy must not send the value of the original.
#[tokio::test]
async fn a_policy_that_is_changed_after_a_response_sends_its_own_values() {
    let original = per_minute(5);
    assert_eq!(fields(&keyed(original.clone()), "a").await.0, r#""p";q=5;w=60"#);
    let changed = original.clone().with_unit("content-bytes");
    assert_eq!(fields(&keyed(changed), "a").await.0, r#""p";q=5;qu="content-bytes";w=60"#);
    let labelled = original.clone().with_partition_keys(PartitionKeys::label(|key: &Key| key.encoded().to_vec()));
    assert_eq!(fields(&keyed(labelled), "a").await.0, r#""p";q=5;w=60;pk=:YQ==:"#);
    assert_eq!(fields(&keyed(original), "a").await.0, r#""p";q=5;w=60"#);
}

#[test]
fn a_unit_that_is_not_a_valid_header_value_is_an_error() {
    for unit in ["", "content bytes", "octets\"", "größe", "1st"] {
        let error = per_minute(5).with_unit(unit).validated().unwrap_err();
        says(error, &format!("policy \"p\": unit {unit:?} is not usable in a header; "));
    }
}

#[tokio::test]
async fn no_partition_key_is_sent_by_default() {
    let (policy, limit) = fields(&keyed(per_minute(5)), "a").await;
    assert!(!policy.contains("pk") && !limit.contains("pk"));
}

/// `printf 'pk\0a' | openssl dgst -sha256 -hmac 0123456789abcdef -binary | head -c 12 | base64`
#[tokio::test]
async fn a_partition_key_is_twelve_bytes_of_an_hmac_of_the_key() {
    let app = keyed(per_minute(5).with_partition_keys(PartitionKeys::hmac(SECRET).unwrap()));
    assert_eq!(partition(&app, "a").await, ":t1Evl7C0bf9V0NFV:");
    assert_eq!(partition(&app, "a").await, ":t1Evl7C0bf9V0NFV:", "the same value for the next request");
    assert_ne!(partition(&app, "b").await, ":t1Evl7C0bf9V0NFV:");
    let other = keyed(per_minute(5).with_partition_keys(PartitionKeys::hmac("fedcba9876543210").unwrap()));
    assert_ne!(partition(&other, "a").await, ":t1Evl7C0bf9V0NFV:", "another secret gives other partition keys");
}

#[test]
fn policies_are_equal_if_they_have_the_same_partition_keys() {
    let [keys, others] = [SECRET, "fedcba9876543210"].map(|secret| PartitionKeys::hmac(secret).unwrap());
    let keyed = |keys: &PartitionKeys| per_minute(5).with_partition_keys(keys.clone());
    assert_eq!(keyed(&keys), keyed(&keys));
    assert_ne!(keyed(&keys), keyed(&others));
    assert_ne!(keyed(&keys), per_minute(5));
}

#[tokio::test]
async fn a_label_is_sent_unchanged() {
    let label = |key: &Key| key.encoded().to_vec();
    let app = keyed(per_minute(1).with_partition_keys(PartitionKeys::label(label)));
    assert_eq!(partition(&app, "tenant-a").await, ":dGVuYW50LWE=:");
    assert_eq!(partition(&app, "tenant-a").await, ":dGVuYW50LWE=:", "denied responses have the label too");
}

/// The label is asked for when the slot is held.
#[tokio::test]
async fn law_15_a_label_that_panics_is_left_out_and_keeps_no_slot() {
    let keys = PartitionKeys::label(|_| panic!("the label of a test"));
    let slots = Policy::concurrent("slots", 1).unwrap().with_partition_keys(keys);
    let app = keyed(slots.clone());
    for _ in 0..2 {
        let reply = get_with(&app, "/", &[("x-tenant", "a")]).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""slots";r=0;t=1"#));
    }
    let limiter = limiter();
    for _ in 0..2 {
        let slot = limiter.hold("a", &slots, 1).await.unwrap().into_result().unwrap();
        slot.release().await.unwrap();
    }
}

#[tokio::test]
async fn each_policy_sends_its_own_partition_key() {
    let keys = PartitionKeys::label(|_| b"x".to_vec());
    let policies = [Policy::per_hour("hourly", 9).unwrap().with_partition_keys(keys), per_minute(5)];
    let app = app(RateLimitLayer::new(limiter(), policies, HeaderKey::new("x-tenant").unwrap()));
    let (policy, limit) = fields(&app, "a").await;
    assert_eq!(policy, r#""hourly";q=9;w=3600;pk=:eA==:, "p";q=5;w=60"#);
    assert_eq!(limit, r#""hourly";r=8;t=3600;pk=:eA==:, "p";r=4;t=60"#);
}

#[test]
fn a_short_secret_is_an_error_and_secrets_are_not_shown() {
    let error = PartitionKeys::hmac("hunter2").unwrap_err();
    assert_eq!(error.to_string(), "a secret of 7 bytes could be guessed; use at least 16");
    assert!(!format!("{:?}", per_minute(1).with_partition_keys(PartitionKeys::hmac(SECRET).unwrap())).contains(SECRET));
}
