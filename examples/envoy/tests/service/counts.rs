//! Which descriptors share a count.

use crate::support::{Descriptor, Service, domain, entries, passed, request};

const ONE: &str = "rate_limit: { unit: year, requests_per_unit: 1 }";

#[tokio::test]
async fn a_value_wins_over_a_pattern_which_wins_over_the_key_alone() {
    let limit = |units: u32| format!("rate_limit: {{ unit: year, requests_per_unit: {units} }}");
    let rules = [
        format!("{{ key: k, {} }}", limit(1)),
        format!("{{ key: k, value: ab*, {} }}", limit(2)),
        format!("{{ key: k, value: abc, {} }}", limit(3)),
        format!("{{ key: k, value: x*z, {} }}", limit(4)),
        "{ key: k, value: exempt }".to_owned(),
    ];
    let service = Service::start(&domain(&rules.each_ref().map(String::as_str))).await;
    for (value, limit) in [("other", 1), ("abcd", 2), ("abc", 3), ("xyz", 4)] {
        assert_eq!(service.passed(6, entries([("k", value)])).await, limit, "{value}");
    }
    assert_eq!(service.passed(6, entries([("k", "exempt")])).await, 6);
}

#[tokio::test]
async fn a_descriptor_matches_a_path_of_exactly_its_depth() {
    let rule = format!("{{ key: a, {ONE}, descriptors: [{{ key: b, descriptors: [{{ key: c, {ONE} }}] }}] }}");
    let service = Service::start(&domain(&[&rule])).await;
    for (descriptor, is_limited) in [
        (entries([("a", "1")]), true),
        (entries([("a", "1"), ("b", "1"), ("c", "1")]), true),
        (entries([]), false),
        (entries([("a", "1"), ("b", "1")]), false),
        (entries([("b", "1")]), false),
        (entries([("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]), false),
    ] {
        let passed = service.passed(2, descriptor.clone()).await;
        assert_eq!(passed, if is_limited { 1 } else { 2 }, "{descriptor:?}");
    }
}

#[tokio::test]
async fn entries_with_separators_do_not_share_a_count() {
    let deep = format!("{{ key: a, {ONE}, descriptors: [{{ key: b, {ONE} }}] }}");
    let other = format!("{{ key: a_x, {ONE} }}");
    let service = Service::start(&domain(&[&deep, &other])).await;
    let long = "x".repeat(1 << 20);
    let longer = format!("{long}y");
    for descriptor in [
        entries([("a", "x_y")]),
        entries([("a_x", "y")]),
        entries([("a", "x|b|y")]),
        entries([("a", "x"), ("b", "y")]),
        entries([("a", "x|b"), ("b", "y")]),
        entries([("a", "x"), ("b", "b|y")]),
        entries([("a", "(x|)")]),
        entries([("a", "")]),
        entries([("a", "%")]),
        entries([("a", "{x}")]),
        entries([("a", "x\0")]),
        entries([("a", &long)]),
        entries([("a", &longer)]),
    ] {
        assert_eq!(service.passed(2, descriptor).await, 1);
    }
}

#[tokio::test]
async fn domains_do_not_share_a_count() {
    let service = Service::start_with(&domain(&[&format!("{{ key: a, {ONE} }}")]), |options| {
        // A folder with two files.
        let other = format!("domain: test|a\ndescriptors: [{{ key: a, {ONE} }}]");
        std::fs::write(options.config.with_file_name("other.yaml"), other).unwrap();
        options.config.pop();
    })
    .await;
    let descriptor = entries([("a", "a")]);
    assert_eq!(service.passed(2, descriptor.clone()).await, 1);
    let call = async |domain| service.try_call(request(domain, [descriptor.clone()])).await.unwrap();
    assert!(passed(&call("test|a").await));
    assert!(!passed(&call("test|a").await));
    assert!(passed(&call("unknown").await) && passed(&call("unknown").await));
}

#[tokio::test]
async fn a_shared_pattern_is_one_count_and_no_value_of_a_client_is_in_it() {
    let shared = format!("{{ key: k, value: f*, share_threshold: true, {ONE} }}");
    let service = Service::start(&domain(&[&shared, &format!("{{ key: k, {ONE} }}")])).await;
    // Its text is that of the pattern, and it matches the pattern.
    assert!(service.passes([entries([("k", "f*")])]).await);
    assert!(!service.passes([entries([("k", "f1")])]).await);
    assert!(service.passes([entries([("k", "(f*|)")])]).await, "no value is the key of the pattern");

    let each = Service::start(&domain(&[&format!("{{ key: k, value: f*, {ONE} }}")])).await;
    assert!(each.passes([entries([("k", "f1")])]).await);
    assert!(each.passes([entries([("k", "f2")])]).await);
    assert!(!each.passes([entries([("k", "f1")])]).await);
}

#[tokio::test]
async fn another_limit_in_a_call_is_another_count() {
    let (minute, year) = (2, 6);
    let service = Service::start(&domain(&[&format!("{{ key: k, {ONE} }}")])).await;
    let descriptor = || entries([("k", "v")]);
    assert_eq!(service.passed(3, descriptor()).await, 1);
    assert_eq!(service.passed(4, descriptor().limit(2, year)).await, 2);
    assert_eq!(service.passed(4, descriptor().limit(3, year)).await, 3);
    assert_eq!(service.passed(4, descriptor().limit(2, minute)).await, 2);
    assert_eq!(service.passed(4, descriptor().limit(0, year)).await, 0);
    // Also without a rule, as long as the domain is known.
    assert_eq!(service.passed(4, entries([("free", "v")]).limit(2, year)).await, 2);
    assert_eq!(service.passed(4, entries([("free", "w")]).limit(2, year)).await, 2);
    for unit in [0, 99] {
        let error = service.try_call(request("test", [descriptor().limit(2, unit)])).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
    }
    // All of them in one call.
    let all = [descriptor(), descriptor().limit(2, year), descriptor().limit(9, year), descriptor().limit(9, minute)];
    let reply = service.reply(all).await;
    assert_eq!(crate::support::oks(&reply), [false, false, true, true]);
}
