//! Prints the table of configuration errors: `cargo test --all-features --test redis config_errors -- --nocapture`.

use std::time::Duration;

use http::request::Parts;
use tollgate::policy::{HoldSettings, Weekday};
use tollgate::{
    Algorithm, ApiKey, Calendar, Check, ClientIp, ConfigError, Error, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter,
    MemoryStore, PeerIp, Policy, RateLimitLayer, RedisStore, Route, ThrottleLayer, headers::PartitionKeys,
    key::PrefixList,
};

fn policy() -> Policy {
    Policy::per_minute("p", 60).unwrap()
}

fn holding() -> Policy {
    policy().with_holds(HoldSettings::new())
}

fn layer() -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy(), GlobalKey)
}

fn routed(route: &str) -> Option<ConfigError> {
    layer().route(route, Route::new().cost(2)).validated().err()
}

fn redis(url: &str) -> Option<ConfigError> {
    RedisStore::open(url).err()
}

/// Pairs of a wrong configuration and its error.
fn mistakes() -> Vec<(&'static str, Option<ConfigError>)> {
    let twice = || RateLimitLayer::new(Limiter::new(MemoryStore::new()), [policy(), policy()], GlobalKey);
    let one_key = || RateLimitLayer::new(Limiter::new(MemoryStore::new()), Vec::<Policy>::new(), PeerIp::new());
    vec![
        (r#"redis: "localhost:6379""#, redis("localhost:6379")),
        (r#"redis: "http://localhost:6379""#, redis("http://localhost:6379")),
        (r#"redis: "redis://:pass/word@host""#, redis("redis://:pass/word@host")),
        (r#"redis: "redis://:pass#word@host""#, redis("redis://:pass#word@host")),
        (r#"redis: "redis://:pass@word@host""#, redis("redis://:pass@word@host")),
        (r#"redis: "redis://host:port""#, redis("redis://host:port")),
        (r#"redis: "redis://host/name""#, redis("redis://host/name")),
        (r#"redis: "redis://host?protocol=4""#, redis("redis://host?protocol=4")),
        (r#"redis: "rediss://host/#insecure""#, redis("rediss://host/#insecure")),
        ("redis: certificates on redis://", RedisStore::builder().root_certificates(b"x").open("redis://host").err()),
        ("redis: an empty PEM", RedisStore::builder().root_certificates(b"").open("rediss://host").err()),
        (
            "redis: sentinels by TLS, their master in clear",
            RedisStore::builder().open_sentinel(["rediss://10.0.0.1:26379"], "mymaster").err(),
        ),
        ("redis: a deadline of 0", RedisStore::builder().deadline(Duration::ZERO).open("redis://host").err()),
        ("redis: no connection", RedisStore::builder().pool_size(0).open("redis://host").err()),
        ("redis: a prefix with braces", RedisStore::builder().prefix("{a}").open("redis://host").err()),
        ("redis: no hash tag", RedisStore::builder().cluster_hash_tags(0).open_cluster(["redis://host"]).err()),
        ("redis: a short secret", RedisStore::builder().key_secret("short").open("redis://host").err()),
        (r#"route "/users/:id""#, routed("/users/:id")),
        (r#"route "/files/*rest""#, routed("/files/*rest")),
        (r#"route "/users/{id""#, routed("/users/{id")),
        (r#"route "/a b""#, routed("/a b")),
        (r#"route "get /a""#, routed("get /a")),
        (r#"route "FETCH /a""#, routed("FETCH /a")),
        (r#"route "/a?b=c""#, routed("/a?b=c")),
        (r#"route "/{*rest}/a""#, routed("/{*rest}/a")),
        (
            r#"routes "/a" and "/a/""#,
            layer().route("/a", Route::exempt()).route("/a/", Route::exempt()).validated().err(),
        ),
        ("[p, p]", twice().validated().err()),
        ("no policy", one_key().validated().err()),
        ("a cost above the limit", layer().with_cost(61).validated().err()),
        (r#"with_cost_of("tokens", 5)"#, layer().with_cost_of("tokens", 5).validated().err()),
        ("fail_local without with_local_fallback", layer().fail_local().validated().err()),
        (
            "with_local_fallback of 0 instances",
            Limiter::new(MemoryStore::new()).with_local_fallback(MemoryStore::new(), 0).validated().err(),
        ),
        ("a store without room", MemoryStore::with_capacity(0).err()),
        (r#"ApiKey::header("authorization")"#, ApiKey::header("authorization").err()),
        (r#"HeaderKey::new("x user")"#, HeaderKey::new("x user").err()),
        ("no trusted proxy", ClientIp::x_forwarded_for("").err()),
        ("a single header without a trusted proxy", ClientIp::header("x-real-ip", "").err()),
        ("all addresses trusted", ClientIp::x_forwarded_for("0.0.0.0/0").err()),
        (r#"a proxy "10.0.0/8""#, PrefixList::new("10.0.0/8").err()),
        ("0 hops", ClientIp::x_forwarded_for(0).err()),
        ("ipv6_prefix(16)", ClientIp::peer().with_ipv6_prefix(16).validate().err()),
        (r#"nat64_prefix("2001:db8::/60")"#, ClientIp::peer().with_nat64_prefix("2001:db8::/60").validate().err()),
        (r#"a policy "a b""#, Policy::per_second("a b", 1).err()),
        ("a limit of 0", Policy::per_second("p", 0).err()),
        ("a window of 0", Policy::new("p", 1, Duration::ZERO).err()),
        ("a window of two years", Policy::new("p", 1, Duration::from_secs(2 * 366 * 86_400)).err()),
        ("a calendar from day 32 on", Policy::calendar("p", 1, Calendar::monthly().on_day(32)).err()),
        ("a calendar in a zone \"Berlin\"", Policy::calendar("p", 1, Calendar::daily().zone("Berlin")).err()),
        ("a day of the week of a month", Policy::calendar("p", 1, Calendar::monthly().on(Weekday::Monday)).err()),
        (
            "a log of a calendar",
            Policy::calendar("p", 1, Calendar::monthly())
                .and_then(|policy| policy.with_algorithm(Algorithm::SlidingWindowLog).validated())
                .err(),
        ),
        ("a resolution above the window", policy().with_resolution(Duration::from_secs(61)).validated().err()),
        (
            "a resolution of a token bucket",
            policy().with_algorithm(Algorithm::TokenBucket).with_resolution(Duration::from_secs(1)).validated().err(),
        ),
        ("a burst of a log", policy().with_burst(5).validated().err()),
        ("a burst of 0", policy().with_algorithm(Algorithm::TokenBucket).with_burst(0).validated().err()),
        ("more shards than units", Policy::per_minute("p", 3).unwrap().with_shards(4).validated().err()),
        (
            "a ban of a policy with shards",
            policy().with_shards(2).ban_after(3, Duration::from_secs(60)).validated().err(),
        ),
        (
            "a cost above the smallest shard",
            layer().with_policies(Policy::per_minute("p", 9).unwrap().with_shards(2)).with_cost(5).validated().err(),
        ),
        ("holds of a policy with shards", policy().with_shards(2).with_holds(HoldSettings::new()).validated().err()),
        (
            "holds without a time-to-live",
            policy().with_holds(HoldSettings::new().with_ttl(Duration::ZERO)).validated().err(),
        ),
        ("a ban after 0 denials", policy().ban_after(0, Duration::from_secs(1)).validated().err()),
        ("a unit with a blank", policy().with_unit("content bytes").validated().err()),
        ("partition keys by a short secret", PartitionKeys::hmac("short").err()),
        (
            "a cost of 0 for a client",
            ThrottleLayer::new(Limiter::new(MemoryStore::new()), policy(), "k").with_cost(0).validated().err(),
        ),
        (
            "fail_local of a client without a fallback",
            ThrottleLayer::new(Limiter::new(MemoryStore::new()), policy(), "k").fail_local().validated().err(),
        ),
        (
            "a policy source without a name that a route names",
            RateLimitLayer::new(Limiter::new(MemoryStore::new()), |_: &Parts, _: &Key| policy(), GlobalKey)
                .route("/a", Route::new().policies(policy()).cost_of("q", 1))
                .validated()
                .err(),
        ),
    ]
}

/// Pairs of a wrong check and its error.
fn mistakes_of_checks() -> [(&'static str, Option<Error>); 4] {
    let limiter = Limiter::new(MemoryStore::new());
    let error = |check| limiter.try_check_all(check).err();
    let other = Policy::per_minute("p", 61).unwrap();
    [
        ("a hold under a policy without holds", error(Check::hold("k", &policy(), 1))),
        ("a hold of 0 units", error(Check::hold("k", &holding(), 0))),
        ("a hold and a charge of one count", error(Check::hold("k", &holding(), 1).and("k", &holding(), 1))),
        ("two policies of one name in a check", error(Check::new("k", &policy(), 1).and("k", &other, 1))),
    ]
}

/// Phrases with which a message says what to write.
const ADVICE: [&str; 14] = [
    "write",
    " use ",
    "call ",
    "at least",
    "at most",
    "leave",
    "remove the ",
    "rename",
    "raise the limit",
    "list ",
    "give ",
    "set ",
    "start with",
    "needs ",
];

#[test]
fn every_configuration_error_says_what_to_write_instead() {
    println!("| written | message |\n| --- | --- |");
    let of_checks = mistakes_of_checks().map(|(written, error)| (written, error.map(|error| error.to_string())));
    let others = mistakes().into_iter().map(|(written, error)| (written, error.map(|error| error.to_string())));
    for (written, error) in others.chain(of_checks) {
        let text = error.unwrap_or_else(|| panic!("{written}: no error"));
        println!("| {written} | {text} |");
        assert!(ADVICE.iter().any(|advice| text.contains(advice)), "{written}: {text}");
    }
}
