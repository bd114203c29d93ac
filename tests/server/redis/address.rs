//! Parts of a URL: sockets, logins, databases; and the documented ACLs.

use std::time::{Duration, Instant};

use tollgate::{
    Algorithm, Check, ErrorKind, Limiter, MemoryStore, Policy, RedisStore, ThrottleLayer, http, policy::HoldSettings,
    store::SettleAnswer,
};
use tower::{Layer, ServiceExt, service_fn};

use super::policy;
use crate::support::connect;
use crate::support::redis_server::{Directory, RedisServer};

fn at(url: &str) -> Limiter {
    // A long deadline, so that a loaded machine causes no timeouts.
    Limiter::new(RedisStore::builder().deadline(Duration::from_secs(10)).open(url).unwrap())
}

#[tokio::test]
async fn a_unix_socket_and_its_database_are_read_from_the_url() {
    let directory = Directory::new();
    let socket = directory.path("redis.sock");
    let server = RedisServer::start_with(&["--unixsocket", &socket]);
    assert_eq!(at(&format!("unix://{socket}")).check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
    let other = at(&format!("redis+unix://{socket}?db=3"));
    assert_eq!(other.check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
    let keyspace = server.command("INFO keyspace");
    assert!(keyspace.contains("db0:keys=1") && keyspace.contains("db3:keys=1"), "{keyspace}");
}

#[tokio::test]
async fn the_error_of_a_socket_names_it_and_says_whether_the_setup_is_wrong() {
    let directory = Directory::new();
    let (gone, long) = (directory.path("gone.sock"), directory.path(&"long".repeat(40)));
    for (socket, kind, advice) in
        [(&gone, ErrorKind::Unavailable, ""), (&long, ErrorKind::StoreMisconfigured, "choose a shorter path")]
    {
        let error = at(&format!("unix://{socket}")).check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (kind, false), "{error}");
        assert!(error.to_string().contains(socket.as_str()) && error.to_string().contains(advice), "{error}");
    }
}

#[tokio::test]
async fn a_database_number_is_read_from_the_url() {
    let server = RedisServer::start();
    let _ = at(&format!("{}/5", server.url())).check("k", &policy(), 1).await.unwrap();
    let keyspace = server.command("INFO keyspace");
    assert!(keyspace.contains("db5:keys=1") && !keyspace.contains("db0"), "{keyspace}");
    let error = at(&format!("{}/99", server.url())).check("k", &policy(), 1).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::StoreMisconfigured, false), "{error}");
}

/// The ACL in the documentation of `RedisStore`.
pub(crate) const MINIMAL_ACL: &str = "resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time \
                                      +getrange +setrange +pexpire +unlink";

#[tokio::test]
async fn the_documented_minimal_acl_permits_everything() {
    // The documentation grants the commands in a second line.
    let documented = include_str!("../../../src/store/redis/store.rs").replace("\n/// ACL SETUSER gate ", " ");
    assert!(
        documented.contains(&MINIMAL_ACL.split(' ').collect::<Vec<_>>().join(" ")),
        "the documentation has another ACL"
    );
    let page = include_str!("../../../docs/operations.md");
    let section = documented.split("The smallest set of permissions").nth(1).and_then(|text| text.split("# Ex").next());
    for word in section.expect("a section about permissions").split([' ', '`', '\n']) {
        assert!(!word.starts_with(['+', '-']) || page.contains(word), "docs/operations.md lacks {word}");
    }
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >p%40ss {MINIMAL_ACL}"));
    server.command("ACL SETUSER default off");
    let limiter = at(&server.url().replace("//", "//gate:p%2540ss@"));
    for policy in [
        Policy::per_hour("log", 2).unwrap(),
        Policy::per_hour("counter", 2).unwrap().with_algorithm(tollgate::Algorithm::SlidingWindowCounter),
        Policy::per_hour("fixed", 2).unwrap().with_algorithm(tollgate::Algorithm::FixedWindow),
        Policy::per_hour("bucket", 2).unwrap().with_algorithm(tollgate::Algorithm::TokenBucket),
        Policy::per_hour("rejected", 2).unwrap().with_denials_counted(true),
    ] {
        for allowed in [true, true, false] {
            assert_eq!(limiter.check("k", &policy, 1).await.unwrap().is_allowed(), allowed, "{policy:?}");
        }
        assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(0));
        limiter.reset("k", &policy).await.unwrap();
        let both = Check::new("k", &policy, 1).and("other", &policy, 1);
        assert!(limiter.check_all(both).await.unwrap().is_allowed());
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    // ACL LOG is not permitted, so the user has no more than the minimal permissions.
    let mut gate =
        redis::Client::open(server.url().replace("//", "//gate:p%2540ss@")).unwrap().get_connection().unwrap();
    assert!(redis::cmd("ACL").arg("LOG").query::<redis::Value>(&mut gate).is_err(), "the minimal ACL permits ACL LOG");
}

/// The additional permissions in the documentation of `RedisStore` for policies with holds.
const HOLDS_ACL: &str = "+exists +zadd +zcard +zscore +zmscore +zrange +zrem";

#[tokio::test]
async fn the_documented_acl_for_holds_is_enough() {
    let documented = include_str!("../../../src/store/redis/store.rs");
    assert!(documented.contains(&format!("`{HOLDS_ACL}`")), "the documentation has another ACL");
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >secret {MINIMAL_ACL} {HOLDS_ACL}"));
    let limiter = at(&server.url().replace("//", "//gate:secret@")).without_notices();
    for algorithm in
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket]
    {
        for released in [false, true] {
            let holds = HoldSettings::new().with_ttl(Duration::from_millis(1)).with_unsettled_released(released);
            let policy = Policy::per_hour(format!("{released:?}"), 10).unwrap().with_algorithm(algorithm);
            let policy = policy.with_holds(holds);
            assert!(limiter.hold("k", &policy, 3).await.unwrap().is_allowed());
            tokio::time::sleep(Duration::from_millis(5)).await;
            let lasting = policy.with_holds(HoldSettings::new().with_unsettled_released(released));
            let first = limiter.hold("k", &lasting, 1).await.unwrap().into_result().unwrap();
            let second = limiter.hold("k", &lasting, 2).await.unwrap().into_result().unwrap();
            first.renew().await.unwrap();
            assert_eq!(first.settle(20).await.unwrap(), SettleAnswer::Settled);
            assert_eq!(second.release().await.unwrap(), SettleAnswer::Settled);
            assert!(limiter.reset("k", &lasting).await.unwrap());
        }
    }
    assert!(server.command("ACL LOG").starts_with("*0"), "a command was refused");
}

/// Bans, shards, waits, pauses of a fleet and changes by hand need no more than plain checks; leases and slots no more
/// than holds.
#[tokio::test]
async fn the_documented_acl_is_enough_in_every_mode() {
    let server = RedisServer::start();
    let url = server.url().replace("//", "//gate:secret@");
    server.command(&format!("ACL SETUSER gate on >secret {MINIMAL_ACL}"));
    let limiter = Limiter::new(connect(&url)).without_notices();
    let second = Duration::from_secs(1);
    for algorithm in
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket]
    {
        let plain = |name: &str| Policy::per_second(name, 2).unwrap().with_algorithm(algorithm);
        let (banned, sharded) = (plain("ban").ban_after(1, second), plain("shards").with_shards(2));
        for _ in 0..4 {
            let _ = limiter.check("k", &banned, 1).await.unwrap();
            let _ = limiter.check("k", &sharded, 1).await.unwrap();
        }
        limiter.ban("k", &plain("p"), second).await.unwrap();
        assert!(limiter.unban("k", &plain("p")).await.unwrap());
        limiter.record("k", &plain("p"), 2).await.unwrap();
        assert!(limiter.acquire("k", &plain("p"), 1).within(3 * second).await.unwrap().is_allowed());
        let _ = limiter.credit("k", &plain("p"), 1).await.unwrap();
        limiter.reset("k", &banned).await.unwrap();
    }
    // The first call asks for a pause, which reaches the store in a task of its own.
    let refuse = |_: http::Request<()>| async {
        let refused = http::Response::builder().status(429).header("retry-after", "1");
        refused.body(()).map_err(|error| error.to_string())
    };
    let upstream = Policy::per_second("upstream", 10).unwrap();
    let throttle = ThrottleLayer::new(limiter, upstream.clone(), "account").with_shared_pauses();
    let client = throttle.layer(service_fn(refuse));
    client.oneshot(http::Request::new(())).await.unwrap();
    tokio::time::sleep(second / 4).await;
    let other = ThrottleLayer::new(Limiter::new(connect(&url)).without_notices(), upstream, "account");
    other.with_shared_pauses().layer(service_fn(refuse)).oneshot(http::Request::new(())).await.unwrap();
    assert!(server.command("ACL LOG").starts_with("*0"), "{}", server.command("ACL LOG"));

    server.command(&format!("ACL SETUSER gate {HOLDS_ACL}"));
    let limiter = Limiter::new(connect(&url)).without_notices();
    let leased = Policy::per_second("leased", 1_000).unwrap().with_lease(100);
    let slots = Policy::concurrent("slots", 1).unwrap();
    for _ in 0..200 {
        assert!(limiter.check("k", &leased, 1).await.unwrap().is_allowed());
    }
    let slot = limiter.acquire_hold("k", &slots, 1).within(second).await.unwrap().into_result().unwrap();
    slot.release().await.unwrap();
    limiter.close().await;
    assert!(server.command("ACL LOG").starts_with("*0"), "{}", server.command("ACL LOG"));
}

/// The additional permissions in the documentation of `RedisStore` for counting instances.
const INSTANCES_ACL: &str = "+zadd +zremrangebyscore +zcard";

#[tokio::test]
async fn the_documented_acl_for_counting_instances_is_enough() {
    let documented = include_str!("../../../src/store/redis/store.rs");
    assert!(documented.contains(&format!("`{INSTANCES_ACL}`")), "the documentation has another ACL");
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >secret {MINIMAL_ACL} {INSTANCES_ACL}"));
    let limiter = at(&server.url().replace("//", "//gate:secret@"))
        .without_notices()
        .with_local_fallback(MemoryStore::new(), None);
    let start = Instant::now();
    while !server.command("ZCARD tollgate:instances").starts_with(":1") {
        assert!(start.elapsed() < Duration::from_secs(5), "the instance is not counted");
        let _ = limiter.check("k", &policy(), 1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(server.command("ACL LOG").starts_with("*0"), "a command was refused");
}

#[tokio::test]
async fn a_wrong_login_or_a_missing_permission_is_a_misconfiguration_until_corrected() {
    let server = RedisServer::start();
    server.command("ACL SETUSER gate on >secret ~other:* -@all +evalsha +eval +time +getrange");
    let limiter = at(&server.url().replace("//", "//gate:secret@"));
    let error = limiter.check("k", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
    server.command(&format!("ACL SETUSER gate {MINIMAL_ACL}"));
    assert!(limiter.check("k", &policy(), 1).await.is_ok());
    // A new password; existing connections stay logged in until the server kills them.
    server.command("ACL SETUSER gate resetpass >other");
    server.command("CLIENT KILL USER gate");
    let mut error = limiter.check("k", &policy(), 1).await.unwrap_err();
    for _ in 0..300 {
        if error.kind() == ErrorKind::StoreMisconfigured {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        error = limiter.check("k", &policy(), 1).await.unwrap_err();
    }
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::StoreMisconfigured, false), "{error}");
    server.command("ACL SETUSER gate resetpass >secret");
    let start = std::time::Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < std::time::Duration::from_millis(1500), "did not recover");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
