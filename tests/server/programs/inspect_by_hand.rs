//! `examples/inspect` changes counts by hand: it bans a client, and charges units or gives them back.

use std::time::Duration;

use tollgate::redis::{self, Commands};
use tollgate::{Limiter, Policy, RedisStore, observe::Fingerprint, policy::HoldSettings};

use crate::inspect::{Ran, SECRET, Service, inspect};
use crate::support::{cluster::Cluster, redis_server::RedisServer};

/// How long a process remembers a denial at most.
const SECOND: Duration = Duration::from_secs(1);

/// The tables on standard output: what was done, and the state after it.
fn tables(ran: &Ran) -> (Vec<&str>, Vec<&str>) {
    assert_eq!(ran.code, 0, "{ran:?}");
    let (done, state) = ran.stdout.split_once("\n\n").unwrap_or_else(|| panic!("{ran:?}"));
    (done.lines().skip(1).collect(), state.lines().skip(1).collect())
}

/// What was done under the policy.
fn done<'a>(ran: &'a Ran, policy: &str) -> &'a str {
    let (done, _) = tables(ran);
    let row = done.iter().find_map(|row| row.strip_prefix(policy)).unwrap_or_else(|| panic!("{ran:?}"));
    row.trim()
}

/// The cells of the policy's row in the state.
fn state<'a>(ran: &'a Ran, policy: &str) -> Vec<&'a str> {
    let (_, state) = tables(ran);
    let row = state.iter().find(|row| row.starts_with(policy)).unwrap_or_else(|| panic!("{ran:?}"));
    row.split_whitespace().collect()
}

/// Whether a time that is left is the whole time, or begins as a time some seconds later does.
fn is_close_to(left: &str, whole: &str, later: &str) -> bool {
    left == whole || left.starts_with(later)
}

/// Another process of the service, with a store of its own.
fn other_process(server: &RedisServer) -> Limiter {
    let builder = RedisStore::builder().prefix("shop:").key_secret(SECRET);
    Limiter::new(builder.deadline(Duration::from_secs(5)).open(&server.url()).unwrap())
}

async fn passes(limiter: &Limiter, policy: &Policy, cost: u64) -> bool {
    limiter.check("alice", policy, cost).await.unwrap().is_allowed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_sees_a_ban_by_inspect_at_its_next_check_and_its_end_within_a_second() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let processes = [&service.limiter, &other_process(&server)];
    let login = Policy::per_minute("login", 60).unwrap();
    for process in processes {
        assert!(passes(process, &login, 1).await);
    }
    let arguments = ["--policy", "login=60/min", "text:alice"];

    let banned = service.inspect("ban", &[&arguments[..], &["10m"]].concat());
    assert_eq!(done(&banned, "login"), "banned for 10m");
    let standing = state(&banned, "login");
    assert_eq!(standing[..4], ["login", "60/1m", "-", "0"], "{banned:?}");
    assert!(is_close_to(standing[6], "10m0s", "9m5"), "{banned:?}");
    assert!(banned.stderr.contains("from its next check on"), "{banned:?}");
    for process in processes {
        assert!(!passes(process, &login, 1).await);
        // Now the process remembers the denial.
        assert!(!passes(process, &login, 1).await);
    }
    let seen = service.inspect("peek", &arguments);
    assert!(is_close_to(seen.cells("login")[6], "10m0s", "9m5"), "{seen:?}");
    let longer = service.inspect("ban", &[&arguments[..], &["2h"]].concat());
    let earlier = done(&longer, "login").strip_prefix("banned for 2h (was banned for ").unwrap();
    assert!(is_close_to(earlier, "10m0s more)", "9m5"), "{longer:?}");

    let ended = service.inspect("unban", &arguments);
    let left = done(&ended, "login").strip_prefix("a ban ended, of which ").unwrap();
    assert!(is_close_to(left, "2h0m were left", "1h59m"), "{ended:?}");
    assert_eq!(state(&ended, "login")[..4], ["login", "60/1m", "2", "58"], "a ban forgets nothing: {ended:?}");
    assert!(ended.stderr.contains("remember denials for up to a second"), "{ended:?}");
    tokio::time::sleep(SECOND).await;
    for process in processes {
        assert!(passes(process, &login, 1).await);
    }
    let again = service.inspect("unban", &arguments);
    assert_eq!(done(&again, "login"), "nothing: no ban was found");
    assert!(!again.stderr.contains("remember denials"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_ends_a_ban_after_denials_and_says_how_to_write_its_policy() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let login = Policy::per_hour("login", 1).unwrap().ban_after(2, Duration::from_secs(3_607));
    for _ in 0..3 {
        passes(&service.limiter, &login, 1).await;
    }
    // No time that the program tries by itself.
    let unaware = service.inspect("unban", &["--policy", "login=1/hour", "text:alice"]);
    assert_eq!(done(&unaware, "login"), "nothing: no ban was found");
    assert!(unaware.stderr.contains("write its words too: login=RATE,ban-after=20/3607s"), "{unaware:?}");
    let ended = service.inspect("unban", &["--policy", "login=1/hour,ban-after=20/3607s", "text:alice"]);
    assert!(done(&ended, "login").starts_with("a ban ended, of which "), "{ended:?}");
    assert_eq!(service.limiter.peek("alice", &login).await.unwrap().policies()[0].ban, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_that_a_ban_is_not_of_the_concurrency_limit_of_the_same_name() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let streams = Policy::concurrent("streams", 4).unwrap();
    let _open = service.limiter.hold("alice", &streams, 1).await.unwrap().into_result().unwrap();
    let banned = service.inspect("ban", &["--policy", "streams=4/min", "text:alice", "10m"]);
    assert!(banned.stderr.contains("write --policy streams=concurrent:4 to change that limit instead"), "{banned:?}");
    assert!(service.limiter.hold("alice", &streams, 1).await.unwrap().is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_process_sees_units_that_inspect_takes_at_its_next_check_and_those_it_gives_within_a_second() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let processes = [&service.limiter, &other_process(&server)];
    let tokens = Policy::per_hour("tokens", 1_000).unwrap();
    assert!(passes(processes[0], &tokens, 100).await);
    let arguments = ["--policy", "tokens=1000/hour", "text:alice"];

    let taken = service.inspect("take", &[&arguments[..], &["1200"]].concat());
    assert_eq!(done(&taken, "tokens"), "1200 units charged");
    assert_eq!(state(&taken, "tokens")[2..4], ["1300", "0"], "{taken:?}");
    assert!(taken.stderr.contains("from its next check on"), "{taken:?}");
    for process in processes {
        assert!(!passes(process, &tokens, 1).await);
    }
    let given = service.inspect("give", &[&arguments[..], &["700"]].concat());
    assert_eq!(done(&given, "tokens"), "700 units given back");
    assert_eq!(state(&given, "tokens")[2..4], ["600", "400"], "{given:?}");
    assert!(given.stderr.contains("remember denials for up to a second"), "{given:?}");
    tokio::time::sleep(SECOND).await;
    for process in processes {
        assert!(passes(process, &tokens, 200).await);
    }
    let rest = service.inspect("give", &[&arguments[..], &["5000"]].concat());
    assert_eq!(done(&rest, "tokens"), "1000 of 5000 units given back: no more were spent");
    let nothing = service.inspect("give", &[&arguments[..], &["1"]].concat());
    assert_eq!(done(&nothing, "tokens"), "nothing: no units are spent");
    assert!(!nothing.stderr.contains("remember denials"), "{nothing:?}");
}

/// What is charged beyond the limit has to be given back, or to leave the window, before the client passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_how_much_is_charged_beyond_the_limit_under_every_algorithm() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    // A window that does not end during the test, and a unit that takes a minute to come back.
    for (number, words) in ["", ",algorithm=counter", ",algorithm=fixed"].into_iter().enumerate() {
        let policy = format!("p{number}=60/366d{words}");
        let name = format!("p{number}");
        let run = |command, amount: &[&str]| {
            service.inspect(command, &[&["--policy", &policy, "text:alice"], amount].concat())
        };
        assert_eq!(state(&run("take", &["200"]), &name)[2..4], ["200", "0"], "{words}");
        assert_eq!(state(&run("give", &["20"]), &name)[2..4], ["180", "0"], "{words}");
        assert_eq!(run("peek", &[]).cells(&name)[2..4], ["180", "0"], "{words}");
        let removed = run("reset", &[]);
        assert!(removed.stdout.ends_with("  180 units, more than the limit of 60\n"), "{words}: {removed:?}");
    }
    let bucket = ["--policy", "bucket=60/hour,algorithm=token-bucket,burst=60", "text:alice"];
    assert_eq!(state(&service.inspect("take", &[&bucket[..], &["200"]].concat()), "bucket")[2..4], ["200", "0"]);
    // More than the longest bucket may take, so the program knows the sum no more.
    let most = ["--policy", "slow=1/366d,algorithm=token-bucket", "text:alice"];
    assert_eq!(state(&service.inspect("take", &[&most[..], &["3"]].concat()), "slow")[2..6], ["1", "or", "more", "0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_bans_under_every_policy_of_the_limits_file_and_takes_and_gives_under_the_one_that_is_named() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let limits = service.files.write(
        "limits.toml",
        "[policies.per-client]\nrate = \"60/min\"\n[policies.login]\nrate = \"5/min\"\nshadow = true\n\
         [default]\npolicies = [\"per-client\", \"login\"]\n",
    );
    let file = ["--config", &limits, "text:alice"];
    let _ = service.limiter.check("alice", &Policy::per_minute("per-client", 60).unwrap(), 1).await.unwrap();

    let banned = service.inspect("ban", &[&file[..], &["90s"]].concat());
    for policy in ["per-client", "login"] {
        assert_eq!(done(&banned, policy), "banned for 90s");
        assert!(state(&banned, policy).iter().any(|cell| cell.starts_with("1m")), "{banned:?}");
    }
    assert!(banned.stderr.contains("login: this is a shadow policy"), "{banned:?}");
    assert!(banned.stderr.contains("refuses the client from its next check on"), "{banned:?}");
    let shadow = service.inspect("ban", &[&["--policy", "login"], &file[..], &["90s"]].concat());
    assert!(!shadow.stderr.contains("refuses the client"), "{shadow:?}");
    let ended = service.inspect("unban", &file);
    assert!(done(&ended, "per-client").starts_with("a ban ended") && done(&ended, "login").starts_with("a ban ended"));

    for command in ["take", "give"] {
        let all = service.inspect(command, &[&file[..], &["5"]].concat());
        assert_eq!(all.code, 2, "{all:?}");
        let expected = format!("{command} changes one policy, and these are several: name one of login, per-client by");
        assert!(all.stderr.contains(&expected) && all.stdout.is_empty(), "{all:?}");
        let one = service.inspect(command, &[&["--policy", "per-client"], &file[..], &["5"]].concat());
        assert_eq!(done(&one, "per-client"), if command == "take" { "5 units charged" } else { "5 units given back" });
        assert_eq!(tables(&one).1.len(), 1, "{one:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_changes_counts_on_a_cluster_with_shards_slots_and_leases() {
    let cluster = Cluster::start();
    let url = cluster.nodes[1].url();
    let service = Service::new(&["--cluster", &url], |builder| builder.open_cluster([&url]).unwrap());
    let shards = Policy::per_hour("shared", 80).unwrap().with_shards(8);
    let streams = Policy::concurrent("streams", 4).unwrap();
    let tokens = Policy::per_minute("tokens", 100_000).unwrap().with_holds(HoldSettings::new());
    let hold = service.limiter.hold("alice", &streams, 1).await.unwrap().into_result().unwrap();
    let policies = [
        ["--policy", "shared=80/hour,shards=8"],
        ["--policy", "streams=concurrent:4"],
        ["--policy", "tokens=100000/min,lease=20000"],
    ]
    .concat();

    let banned = service.inspect("ban", &[&policies[..], &["text:alice", "1d"]].concat());
    for policy in ["shared", "streams", "tokens"] {
        assert_eq!(done(&banned, policy), "banned for 1d");
        assert!(state(&banned, policy).iter().any(|cell| ["1d0h", "23h59m"].contains(cell)), "{policy}: {banned:?}");
    }
    assert!(banned.stderr.contains("tokens: each process may still spend its blocks"), "{banned:?}");
    assert!(!passes(&service.limiter, &shards, 1).await);
    for policy in [&streams, &tokens] {
        assert!(!service.limiter.hold("alice", policy, 1).await.unwrap().is_allowed());
    }
    hold.release().await.unwrap();
    service.inspect("unban", &[&policies[..], &["text:alice"]].concat());
    tokio::time::sleep(SECOND).await;
    assert!(passes(&service.limiter, &shards, 1).await);
    assert!(service.limiter.hold("alice", &streams, 4).await.unwrap().is_allowed());

    let taken = service.inspect("take", &["--policy", "tokens=100000/min", "text:alice", "60000"]);
    assert_eq!(done(&taken, "tokens"), "60000 units charged");
    assert!(!service.limiter.hold("alice", &tokens, 50_000).await.unwrap().is_allowed(), "holds see the units");
}

/// A ban of a key that the service does not use has no effect, so the program says that the key may be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_says_that_nothing_was_counted_for_the_key_before_it_is_banned() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let unknown = service.inspect("ban", &["--policy", "p=60/min", "ip:2001:db8::1", "10m"]);
    assert_eq!(done(&unknown, "p"), "banned for 10m");
    assert!(unknown.stderr.contains("nothing was counted for this key before"), "{unknown:?}");
    assert!(unknown.stderr.contains("ip/56:2001:db8::1"), "{unknown:?}");

    let policy = Policy::per_minute("p", 60).unwrap();
    let _ = service.limiter.check("alice", &policy, 1).await.unwrap();
    let known = service.inspect("ban", &["--policy", "p=60/min", "text:alice", "10m"]);
    assert!(!known.stderr.contains("nothing was counted"), "{known:?}");

    // A tuple, and the fingerprint that a log has of a key.
    let tuple = service.inspect("take", &["--policy", "p=60/min", "text:alice", "route:/search", "7"]);
    assert_eq!(state(&tuple, "p")[2..4], ["7", "53"], "{tuple:?}");
    let redis_key = seen_key(&service);
    let fingerprint: Fingerprint = redis_key.parse().unwrap();
    let logged = service.inspect("unban", &["--policy", "p=60/min", &format!("fingerprint:{fingerprint}")]);
    assert!(done(&logged, "p").starts_with("a ban ended"), "{logged:?}");
    assert_eq!(service.limiter.peek("alice", &policy).await.unwrap().policies()[0].ban, None);
}

/// What a log has of `alice`: the hashed part of the Redis key.
fn seen_key(service: &Service) -> String {
    let standing = service.inspect("peek", &["--policy", "p=60/min", "text:alice"]);
    let (_, rest) = standing.stdout.split_once("{$").unwrap();
    rest.split_once('}').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_changes_no_value_that_is_no_count() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let standing = service.inspect("peek", &["--policy", "p=60/min", "text:alice"]);
    let redis_key = standing.cells("p").last().unwrap().to_string();
    server.connection().set::<_, _, ()>(&redis_key, "not ours").unwrap();
    for (command, amount) in [("ban", &["10m"][..]), ("unban", &[]), ("take", &["3"]), ("give", &["3"])] {
        let refused = service.inspect(command, &[&["--policy", "p=60/min", "text:alice"], amount].concat());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stdout.ends_with("nothing\n"), "{refused:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        let value: String = redis::cmd("GET").arg(&redis_key).query(&mut server.connection()).unwrap();
        assert_eq!(value, "not ours", "{command}");
    }
    // What was done before the failure is printed.
    let arguments =
        ["--policy", "first=60/min", "--policy", "p=60/min", "--policy", "last=60/min", "text:alice", "10m"];
    let partly = service.inspect("ban", &arguments);
    assert_eq!(partly.code, 1, "{partly:?}");
    assert_eq!(partly.stdout, "policy  done\nfirst   banned for 10m\np       nothing\n");
}

#[test]
fn inspect_says_what_to_write_instead_of_a_wrong_time_number_or_policy_of_a_change() {
    for (arguments, expected) in [
        (&["ban", "text:a"][..], "ban: no time: write it behind the KEY: ban KEY 10m"),
        (&["ban"], "ban: no time: "),
        (&["ban", "10m"], "no key: "),
        (&["ban", "text:a", "10"], "ban: \"10\" is not a time from 1ms to 366d: write 90s, 10m, 2h or 1d"),
        (&["ban", "text:a", "0s"], "ban: \"0s\" is not a time from 1ms to 366d"),
        (&["ban", "text:a", "367d"], "ban: \"367d\" is not a time from 1ms to 366d"),
        (&["ban", "text:a", "99999999999999999999d"], "is not a time from 1ms to 366d"),
        (&["ban", "text:a", "1h30m"], "ban: \"1h30m\" is not a time"),
        (&["unban", "text:a", "10m"], "\"10m\" is not a key"),
        (&["take", "text:a"], "take: no number of units: write it behind the KEY: take KEY 100"),
        (&["take", "token:sk-live-4711"], "take: no number of units: "),
        (&["take", "text:a", "0"], "take: \"0\" is not a number of units from 1 to 1099511627776"),
        (&["give", "text:a", "-5"], "give: \"-5\" is not a number of units"),
        (&["give", "text:a", "+5"], "give: \"+5\" is not a number of units"),
        (&["give", "text:a", "1.5"], "give: \"1.5\" is not a number of units"),
        (&["give", "text:a", "1099511627777"], "give: \"1099511627777\" is not a number of units"),
        (
            &["take", "text:a", "5", "--policy", "q=5/min"],
            "take changes one policy, and these are several: name one of q, p by --policy",
        ),
    ] {
        let ran = inspect(&[arguments, &["--redis", "redis://127.0.0.1:1", "--policy", "p=60/min"]].concat());
        refuses(&ran, expected);
    }
    for command in ["take", "give"] {
        for (policy, expected) in [
            ("p=concurrent:4", "p is a concurrency limit, which charges no units: ban or reset the key instead"),
            ("p=80/min,shards=8", "p has shards, each with units of its own: ban or reset the key instead"),
        ] {
            let ran = inspect(&[command, "--redis", "redis://127.0.0.1:1", "--policy", policy, "text:a", "5"]);
            refuses(&ran, &format!("{command}: policy {expected}"));
        }
    }
}

fn refuses(ran: &Ran, expected: &str) {
    assert_eq!(ran.code, 2, "{expected}: {ran:?}");
    assert!(ran.stdout.is_empty() && ran.stderr.contains(expected), "{expected}: {ran:?}");
    assert!(ran.stderr.lines().count() == 1 && !ran.stderr.contains("sk-live"), "{expected}: {ran:?}");
}
