//! What `examples/inspect` says beside its tables: what an operator should compare, and what is no fault.

use tollgate::{Policy, redis};

use crate::inspect::{Ran, Service, inspect};
use crate::inspect_holds::notes;
use crate::support::{cluster::Cluster, redis_server::RedisServer};

/// The line about a client for which nothing is counted.
fn nothing(ran: &Ran) -> &str {
    assert_eq!(ran.code, 0, "{ran:?}");
    notes(ran).into_iter().find(|note| note.starts_with("nothing is counted")).unwrap_or_else(|| panic!("{ran:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_first_that_a_client_may_be_idle_and_then_what_to_compare() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    for policy in ["p=60/min", "streams=concurrent:4", "tokens=1000/min,holds"] {
        let idle = service.inspect("peek", &["--policy", policy, "text:alice"]);
        let advice = nothing(&idle);
        assert!(advice.starts_with("nothing is counted for this key: the client is idle, or "), "{idle:?}");
        for word in ["prefix", "secret", "--cluster", "algorithm", "window", "resolution", "shards"] {
            assert!(advice.contains(word), "{word}: {idle:?}");
        }
    }
}

#[test]
fn inspect_names_the_option_for_a_node_of_a_cluster() {
    let cluster = Cluster::start();
    // A node has a part of the slots, so it refuses some of these keys.
    let keys: Vec<String> = (0..20).map(|number| format!("text:{number}")).collect();
    let url = cluster.nodes[0].url();
    let runs = keys.iter().map(|key| inspect(&["peek", "--redis", &url, "--policy", "p=60/min", key]));
    let refused = runs.into_iter().find(|ran| ran.code == 1).expect("a node that has all slots");
    assert!(refused.stderr.contains("is a node of a cluster: write --cluster URL instead of --redis"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_that_a_fingerprint_leads_nowhere_if_the_service_sets_no_secret_of_fingerprints() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    for command in ["peek", "reset", "unban"] {
        let unknown = service.inspect(command, &["--policy", "p=60/min", "fingerprint:OYcgTFRMZSMUc535ws0X5w"]);
        let advice = notes(&unknown);
        let advice =
            advice.iter().find(|note| note.starts_with("fingerprint:")).unwrap_or_else(|| panic!("{unknown:?}"));
        assert!(advice.contains("Fingerprint::set_secret") && advice.contains("write the plain key"), "{unknown:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_leaves_out_policies_of_a_file_to_which_a_fingerprint_does_not_lead() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let per_client = Policy::per_minute("per-client", 60).unwrap();
    let _ = service.limiter.check("alice", &per_client, 5).await.unwrap();
    let standing = service.inspect("peek", &["--policy", "per-client=60/min", "text:alice"]);
    let (_, rest) = standing.stdout.split_once("{$").unwrap();
    let key = format!("fingerprint:{}", rest.split_once('}').unwrap().0);

    let sharded = "[policies.all]\nrate = \"800/min\"\nshards = 8\n";
    let plain = "[policies.per-client]\nrate = \"60/min\"\n";
    let default = "[default]\npolicies = [\"all\"]\n";
    let limits = service.files.write("limits.toml", format!("{sharded}{plain}{default}"));
    let seen = service.inspect("peek", &["--config", &limits, &key]);
    assert_eq!(seen.cells("per-client")[2..4], ["5", "55"], "{seen:?}");
    assert!(!seen.stdout.contains("all"), "{seen:?}");
    assert!(notes(&seen)[0].starts_with("policy all is left out: it has shards, "), "{seen:?}");

    let only = service.files.write("sharded.toml", format!("{sharded}{default}"));
    let refused = service.inspect("peek", &["--config", &only, &key]);
    assert!(refused.code == 2 && refused.stderr.contains("policy all has shards"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_names_the_permission_that_it_lacks_once() {
    let server = RedisServer::start();
    // The smallest set of permissions in the docs of `RedisStore`.
    let rules = "on >password resetkeys ~shop:* resetchannels -@all \
                 +evalsha +eval +script|load +time +get +getrange +setrange +pexpire +unlink";
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("gate").arg(rules.split_whitespace().collect::<Vec<_>>());
    command.query::<()>(&mut server.connection()).unwrap();
    let url = format!("redis://gate:password@127.0.0.1:{}", server.port());
    let service = Service::new(&["--redis", &url], |builder| builder.open(&url).unwrap());
    let policies = ["--policy", "p=60/min", "--policy", "q=60/min", "text:alice"];
    let _ = service.limiter.check("alice", &Policy::per_minute("p", 60).unwrap(), 4).await.unwrap();
    for (command, amount) in [("peek", &[][..]), ("ban", &["10m"]), ("unban", &[]), ("reset", &[])] {
        let ran = service.inspect(command, &[&policies[..], amount].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.stderr.matches("cannot look for open holds").count(), 1, "{ran:?}");
        assert_eq!(ran.stderr.matches("+zrange").count(), 1, "{ran:?}");
    }
}

#[test]
fn inspect_names_the_command_that_runs_it() {
    assert!(inspect(&["--help"]).stdout.contains("cargo run --release -p tollgate-inspect -- "));
}
