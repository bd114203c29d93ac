//! How many units a call takes or gives back.

use crate::support::{Descriptor, Service, domain, entries, oks, request};

#[tokio::test]
async fn hits_of_the_descriptor_win_over_those_of_the_call() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { unit: year, requests_per_unit: 100 } }"])).await;
    let descriptor = entries([("k", "v")]);
    let mut call = request("test", [descriptor.clone()]);
    call.hits_addend = 7;
    assert_eq!(service.try_call(call.clone()).await.unwrap().statuses[0].limit_remaining, 93);
    call.descriptors = vec![descriptor.clone().hits(3)];
    assert_eq!(service.try_call(call.clone()).await.unwrap().statuses[0].limit_remaining, 90);
    call.hits_addend = 0;
    call.descriptors = vec![descriptor];
    assert_eq!(service.try_call(call).await.unwrap().statuses[0].limit_remaining, 89);
}

#[tokio::test]
async fn zero_hits_ask_whether_a_unit_is_left_and_charge_nothing() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { unit: year, requests_per_unit: 2 } }"])).await;
    let descriptor = || entries([("k", "v")]);
    for _ in 0..5 {
        assert_eq!(service.left(descriptor()).await, 2);
    }
    assert!(service.passes([descriptor().hits(2)]).await);
    assert!(!service.passes([descriptor().hits(0)]).await);
    // A question and a charge in one call: the question refuses, so nothing is charged.
    let other = || entries([("k", "w")]);
    let reply = service.reply([descriptor().hits(0), other()]).await;
    assert_eq!(oks(&reply), [false, true]);
    assert_eq!(service.left(other()).await, 2);
}

#[tokio::test]
async fn huge_hits_are_refused_and_overflow_nothing() {
    let yaml = domain(&[
        "{ key: k, rate_limit: { unit: year, requests_per_unit: 4294967295 } }",
        "{ key: s, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 5 } }",
    ]);
    let service = Service::start(&yaml).await;
    let descriptor = || entries([("k", "v")]);
    for hits in [u64::MAX, u64::from(u32::MAX) + 1, 1 << 53, 1 << 40] {
        assert!(!service.passes([descriptor().hits(hits)]).await, "{hits}");
        // Their sum does not wrap around.
        assert!(!service.passes([descriptor().hits(hits), descriptor().hits(hits)]).await, "{hits}");
        assert!(service.passes([entries([("s", "v")]).hits(hits)]).await, "shadow refuses nothing");
    }
    assert_eq!(service.left(descriptor()).await, u32::MAX);
    assert!(service.passes([descriptor().hits(u32::MAX.into())]).await);
    assert_eq!(service.left(descriptor()).await, 0);
}

#[tokio::test]
async fn negative_hits_give_back_no_more_than_was_charged() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { unit: year, requests_per_unit: 10 } }"])).await;
    let descriptor = || entries([("k", "v")]);
    assert!(service.passes([descriptor().back(u64::MAX)]).await);
    assert_eq!(service.passed(20, descriptor()).await, 10);
    assert!(service.passes([descriptor().back(3)]).await);
    assert_eq!(service.passed(20, descriptor()).await, 3);
    assert!(service.passes([descriptor().back(u64::MAX)]).await);
    assert_eq!(service.passed(20, descriptor()).await, 10, "never more than the limit at once");
    assert!(service.passes([descriptor().back(0)]).await);
    assert_eq!(service.passed(5, descriptor()).await, 0);
    // A refused call gives nothing back either.
    let other = || entries([("k", "w")]);
    assert!(service.passes([other().hits(5)]).await);
    assert!(!service.passes([descriptor(), other().back(5)]).await);
    assert_eq!(service.left(other()).await, 5);
}

#[tokio::test]
async fn hits_that_are_recorded_are_charged_although_they_do_not_fit() {
    let rule = "{ key: k, rate_limit: { unit: year, requests_per_unit: 10, record: true } }";
    let service = Service::start(&domain(&[rule])).await;
    let descriptor = || entries([("k", "v")]);
    // What is asked on the way in, and charged on the way out.
    assert!(service.passes([descriptor().hits(0)]).await);
    assert!(service.passes([descriptor().hits(8)]).await);
    assert!(service.passes([descriptor().hits(0)]).await);
    assert!(!service.passes([descriptor().hits(50)]).await);
    assert!(!service.passes([descriptor().hits(0)]).await);
    assert!(service.passes([descriptor().back(48)]).await);
    assert!(!service.passes([descriptor().hits(0)]).await);
    assert!(service.passes([descriptor().back(1)]).await);
    assert!(service.passes([descriptor().hits(0)]).await);
}

#[tokio::test]
async fn hits_are_recorded_under_a_rule_in_shadow_mode() {
    let rule = "{ key: k, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 10, record: true } }";
    let service = Service::start(&domain(&[rule])).await;
    let descriptor = || entries([("k", "v")]);
    assert!(service.passes([descriptor().hits(8)]).await);
    assert!(service.passes([descriptor().hits(5)]).await);
    assert_eq!(service.left(descriptor()).await, 0);
    assert!(service.passes([descriptor().back(12)]).await);
    assert_eq!(service.left(descriptor()).await, 9);
}

#[tokio::test]
async fn hits_are_recorded_if_a_question_refuses_the_call() {
    let service = Service::start(&domain(&[
        "{ key: k, rate_limit: { unit: year, requests_per_unit: 10, record: true } }",
        "{ key: full, rate_limit: { unit: year, requests_per_unit: 0 } }",
    ]))
    .await;
    assert!(!service.passes([entries([("full", "v")]).hits(0), entries([("k", "v")]).hits(3)]).await);
    assert_eq!(service.left(entries([("k", "v")])).await, 7);
}
