//! `tollgate-inspect reset --all`.

use std::time::Duration;

use tollgate::Policy;

use crate::inspect::{Service, inspect};
use crate::support::{cluster::Cluster, redis_server::RedisServer, sentinel::Trio};

/// Charges clients, and resets all of them.
async fn resets_all(service: &Service) {
    let policy = Policy::per_hour("p", 10).unwrap();
    for client in 0..30_u32 {
        assert!(service.limiter.check(client, &policy, 10).await.unwrap().is_allowed());
    }
    let unconfirmed = service.inspect("reset", &["--all"]);
    assert_eq!(unconfirmed.code, 2);
    assert!(unconfirmed.stderr.contains("write --yes too"), "{unconfirmed:?}");
    assert_eq!(service.limiter.peek(0_u32, &policy).await.unwrap().available(), Some(0));

    let reset = service.inspect("reset", &["--all", "--yes"]);
    assert_eq!((reset.code, &*reset.stdout), (0, "30 keys removed\n"), "{reset:?}");
    assert!(reset.stderr.contains("processes of the service remember denials for up to a second"), "{reset:?}");
    for client in 0..30_u32 {
        assert_eq!(service.limiter.peek(client, &policy).await.unwrap().available(), Some(10));
    }
    let again = service.inspect("reset", &["--all", "--yes"]);
    assert_eq!((again.code, &*again.stdout), (0, "0 keys removed\n"), "{again:?}");
    assert!(again.stderr.contains("nothing is counted under the prefix \"shop:\""), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_all_clients_on_one_server_if_that_is_confirmed() {
    resets_all(&Service::on(&RedisServer::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_all_clients_behind_sentinels() {
    let trio = Trio::start(Duration::from_secs(60));
    let urls: Vec<String> = trio.sentinels.iter().map(RedisServer::url).collect();
    let arguments = ["--sentinel", &urls[0], "--master", Trio::NAME];
    resets_all(&Service::new(&arguments, |builder| builder.open_sentinel(&urls, Trio::NAME).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_resets_all_clients_on_every_master_of_a_cluster() {
    let cluster = Cluster::start();
    let url = cluster.nodes[1].url();
    resets_all(&Service::new(&["--cluster", &url], |builder| builder.open_cluster([&url]).unwrap())).await;
}

#[test]
fn inspect_says_what_to_leave_out_of_a_reset_of_all_clients() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--all", "--yes"];
    for (command, arguments, expected) in [
        ("reset", vec!["text:a"], "leave out KEY, --policy and --config"),
        ("reset", vec!["--policy", "p=60/min"], "leave out KEY, --policy and --config"),
        ("reset", vec!["--config", "limits.toml"], "leave out KEY, --policy and --config"),
        ("peek", vec![], "peek is for one client: only reset has --all"),
        ("ban", vec!["10m"], "ban is for one client: only reset has --all"),
    ] {
        let ran = inspect(&[&[command], &redis[..], &arguments].concat());
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{ran:?}");
        assert!(ran.stderr.contains(expected), "{ran:?}");
    }
    let ran = inspect(&["reset", "--redis", "redis://127.0.0.1:1", "--yes", "text:a"]);
    assert!(ran.code == 2 && ran.stderr.contains("--yes confirms reset --all"), "{ran:?}");
}
