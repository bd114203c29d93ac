//! A master that sentinels name, and the next one.

use std::time::{Duration, Instant};

use tollgate::{ConfigError, ErrorKind, Limiter, RedisStore};

use crate::{
    policy,
    support::redis_server::{Directory, RedisServer, free_port},
};

/// A master, a replica, and three sentinels that agree on who is which.
struct Trio {
    master: RedisServer,
    replica: RedisServer,
    sentinels: Vec<RedisServer>,
    _directory: Directory,
}

impl Trio {
    fn start() -> Self {
        let (master, replica) = (RedisServer::start(), RedisServer::start());
        replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        until("the replica is in step", || replica.command("INFO replication").contains("master_link_status:up"));
        let directory = Directory::new();
        let sentinels: Vec<_> = (0..3)
            .map(|number| {
                let configuration = format!(
                    "port 0\nsentinel monitor mymaster 127.0.0.1 {} 2\nsentinel down-after-milliseconds mymaster 500\n\
                     sentinel failover-timeout mymaster 3000\n",
                    master.port()
                );
                let file = directory.write(&format!("sentinel{number}.conf"), configuration);
                RedisServer::start_sentinel(&file, free_port())
            })
            .collect();
        let this = Self { master, replica, sentinels, _directory: directory };
        until("the sentinels know one another and the replica", || {
            this.sentinels.iter().all(|sentinel| {
                let known = sentinel.command("SENTINEL MASTERS");
                known.contains("num-other-sentinels\r\n$1\r\n2") && known.contains("num-slaves\r\n$1\r\n1")
            })
        });
        this
    }

    fn limiter(&self) -> Limiter {
        let urls: Vec<_> = self.sentinels.iter().map(RedisServer::url).collect();
        let urls = urls.iter().map(String::as_str);
        Limiter::new(RedisStore::builder().connect_sentinel(urls, "mymaster").unwrap())
    }
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        // A sentinel that was kept from running for two seconds does nothing for thirty.
        assert!(start.elapsed() < Duration::from_secs(60), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sentinels cut all connections of a server whose role they change, this one too.
fn role(server: &RedisServer, role: &str) -> bool {
    server.try_command("ROLE").is_ok_and(|reply| reply.contains(role))
}

async fn healed(limiter: &Limiter, within: Duration) {
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < within, "still not healed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_the_master_is_followed_when_it_is_asked_for_and_when_the_master_dies() {
    let mut trio = Trio::start();
    let limiter = trio.limiter();
    healed(&limiter, Duration::from_secs(2)).await;
    assert!(trio.master.command("DBSIZE").starts_with(":1"));

    // Asked for: the old master lives on as a replica and keeps our sockets until we find out.
    trio.sentinels[0].command("SENTINEL FAILOVER mymaster");
    until("the replica is the master", || role(&trio.replica, "master"));
    until("the master is a replica", || role(&trio.master, "slave"));
    healed(&limiter, Duration::from_secs(2)).await;
    for _ in 0..20 {
        assert!(limiter.check("k", &policy(), 1).await.is_ok());
    }

    // Killed: the other one is promoted again, once the sentinels agree that nobody answers.
    until("the old master is in step", || trio.master.command("INFO replication").contains("master_link_status:up"));
    until("the sentinels have settled", || {
        trio.sentinels.iter().all(|sentinel| {
            let role = sentinel.command("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster");
            role.contains(&trio.replica.port().to_string())
        })
    });
    trio.replica.kill();
    let error = limiter.check("k", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    until("the old master is the master again", || role(&trio.master, "master"));
    healed(&limiter, Duration::from_secs(3)).await;
}

#[tokio::test]
async fn sentinels_that_do_not_know_the_master_or_are_not_there_are_an_error_in_time() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let limiter = Limiter::new(RedisStore::builder().connect_sentinel([nobody.as_str()], "mymaster").unwrap());
    let start = Instant::now();
    let error = limiter.check("k", &policy(), 1).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
    assert!(start.elapsed() < Duration::from_millis(500));
}

#[test]
fn a_login_and_a_database_are_read_from_the_masters_url_and_nonsense_is_refused() {
    let connect =
        |sentinels: &[&str], master: &str| RedisStore::builder().connect_sentinel(sentinels.iter().copied(), master);
    let store = connect(&["redis://:sesame@127.0.0.1:1"], "redis://user:hunter2@mymaster/3").unwrap();
    let shown = format!("{store:?}");
    assert!(shown.contains("mymaster") && !shown.contains("hunter2") && !shown.contains("sesame"), "{shown}");
    for (sentinels, master) in [(&[][..], "mymaster"), (&["redis://127.0.0.1:1"], ""), (&["nonsense"], "mymaster")] {
        assert!(matches!(connect(sentinels, master), Err(ConfigError::InvalidRedisUrl { .. })), "{sentinels:?}");
    }
}
