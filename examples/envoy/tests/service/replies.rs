//! The fields of answers.

use crate::support::{Descriptor, Service, domain, entries, field, oks, request};

#[tokio::test]
async fn statuses_say_where_each_rule_stands() {
    let yaml = domain(&[
        "{ key: a, rate_limit: { unit: minute, requests_per_unit: 10, name: first } }",
        "{ key: b, rate_limit: { window: 90s, requests_per_unit: 4 } }",
    ]);
    let service = Service::start(&yaml).await;
    let call = || [entries([("b", "v")]), entries([("none", "v")]), entries([("a", "v")])];
    let reply = service.reply(call()).await;
    let limits: Vec<_> = reply.statuses.iter().map(|status| status.current_limit.clone()).collect();
    let shown = |number: usize| {
        let limit = limits[number].as_ref().unwrap();
        (limit.name.as_str(), limit.requests_per_unit, limit.unit().as_str_name())
    };
    assert_eq!((shown(0), shown(2)), (("", 4, "UNKNOWN"), ("first", 10, "MINUTE")));
    assert_eq!(limits[1], None);
    assert_eq!(reply.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), [3, 0, 9]);
    assert_eq!(reply.statuses[0].duration_until_reset.unwrap().seconds, 90);
    assert_eq!(field(&reply, "ratelimit-policy"), Some("\"b\";q=4;w=90, \"first\";q=10;w=60"));
    assert_eq!(field(&reply, "retry-after"), None);
}

#[tokio::test]
async fn a_refusal_says_when_the_call_passes() {
    let yaml = domain(&[
        "{ key: k, rate_limit: { window: 300ms, requests_per_unit: 5 } }",
        "{ key: long, rate_limit: { unit: minute, requests_per_unit: 5 } }",
    ]);
    let service = Service::start(&yaml).await;
    let descriptor = || entries([("k", "v")]);
    assert!(service.passes([descriptor().hits(5)]).await);
    let reply = service.reply([descriptor()]).await;
    let wait: u64 = field(&reply, "retry-after-ms").unwrap().parse().unwrap();
    assert!((1..=300).contains(&wait), "{wait}");
    assert_eq!((field(&reply, "retry-after"), field(&reply, "cache-control")), (Some("1"), Some("no-store")));
    tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
    assert!(service.passes([descriptor().hits(5)]).await);

    let long = || entries([("long", "v")]);
    assert!(service.passes([long().hits(5)]).await);
    let reply = service.reply([long()]).await;
    let seconds: u64 = field(&reply, "retry-after").unwrap().parse().unwrap();
    assert!((59..=60).contains(&seconds));
    let reset = reply.statuses[0].duration_until_reset.unwrap();
    assert_eq!((reset.seconds.unsigned_abs(), reset.nanos), (seconds, 0));
}

#[tokio::test]
async fn a_refusal_that_no_wait_ends_has_no_retry_after() {
    let yaml = domain(&[
        "{ key: zero, rate_limit: { unit: minute, requests_per_unit: 0 } }",
        "{ key: five, rate_limit: { unit: minute, requests_per_unit: 5 } }",
    ]);
    let service = Service::start(&yaml).await;
    for call in [[entries([("zero", "v")])], [entries([("five", "v")]).hits(6)]] {
        let reply = service.reply(call).await;
        assert_eq!(oks(&reply), [false]);
        assert_eq!((field(&reply, "retry-after"), field(&reply, "retry-after-ms")), (None, None));
        assert!(reply.statuses[0].current_limit.is_some());
    }
}

#[tokio::test]
async fn a_year_and_the_largest_limit_fit_into_a_status() {
    let rule = "{ key: k, rate_limit: { unit: year, requests_per_unit: 4294967295, algorithm: counter } }";
    let service = Service::start(&domain(&[rule])).await;
    let reply = service.reply([entries([("k", "v")])]).await;
    let status = &reply.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit().as_str_name()), (u32::MAX, "YEAR"));
    assert_eq!(status.limit_remaining, u32::MAX - 1);
    assert!((0..=u32::MAX.into()).contains(&status.duration_until_reset.unwrap().seconds));
}

#[tokio::test]
async fn the_style_of_the_fields_is_an_option() {
    let yaml = domain(&["{ key: k, rate_limit: { unit: minute, requests_per_unit: 1 } }"]);
    let service = Service::start_with(&yaml, |options| options.headers = "hidden".parse().unwrap()).await;
    assert!(service.passes([entries([("k", "v")])]).await);
    let reply = service.reply([entries([("k", "v")])]).await;
    let names: Vec<_> = reply.response_headers_to_add.iter().map(|field| field.key.as_str()).collect();
    assert_eq!(names, ["cache-control"]);
}

#[tokio::test]
async fn a_call_that_says_nothing_or_too_much_is_invalid() {
    let service = Service::start(&domain(&["{ key: k, rate_limit: { unit: year, requests_per_unit: 9 } }"])).await;
    let one = || entries([("k", "v")]);
    for (call, expected) in [
        (request("", [one()]), "the domain is empty"),
        (request("test", []), "the call has no descriptor"),
        (request("test", vec![one(); 65]), "65 descriptors; a call has at most 64"),
        (request("test", [entries([("k", "v"); 65])]), "65 entries; a descriptor has at most 64"),
    ] {
        let error = service.try_call(call).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert!(error.message().contains(expected), "{error}");
    }
    let mut large = one();
    large.entries[0].value = "v".repeat(5 << 20);
    let error = service.try_call(request("test", [large])).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::OutOfRange);
    assert!(service.passes(vec![one(); 9]).await);
}
