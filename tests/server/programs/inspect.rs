//! `examples/inspect`: it sees and resets what the layer has charged, whatever made the key, on every kind of Redis.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output};
use std::{sync::LazyLock, time::Duration};

use axum::http::{Request, StatusCode};
use axum::{Router, body::Body, routing::get};
use tollgate::{
    Algorithm, ApiKey, ClientIp, ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, MatchedPathKey,
    PeerIp, Policy, RateLimitLayer, RedisStore, store::RedisStoreBuilder,
};
use tower::ServiceExt;

use crate::built::PROGRAMS;
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{cluster::Cluster, ports::free_port, sentinel::Trio};

pub(crate) const SECRET: &str = "an example of a secret of the keys";
const TOKEN: &str = "sk-live-4711";

/// Inserted by authentication.
#[derive(Clone)]
struct User(u64);

impl From<&User> for Key {
    fn from(user: &User) -> Self {
        Self::from(user.0)
    }
}

/// The service, and the arguments with which the program finds its counts.
pub(crate) struct Service {
    pub(crate) limiter: Limiter,
    arguments: Vec<String>,
    pub(crate) files: Directory,
}

impl Service {
    /// `arguments` name the servers.
    pub(crate) fn new(arguments: &[&str], connect: impl FnOnce(RedisStoreBuilder) -> RedisStore) -> Self {
        // A build of the programs takes longer than a test may count for its bans and windows.
        LazyLock::force(&PROGRAMS);
        let files = Directory::new();
        let secret_file = files.write("secret", format!("{SECRET}\n"));
        files.write("token", format!("{TOKEN}\n"));
        let builder = RedisStore::builder().prefix("shop:").key_secret(SECRET);
        let store = connect(builder.deadline(Duration::from_secs(5)));
        let mut arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string()).collect();
        arguments.extend(["--prefix".to_owned(), "shop:".to_owned(), "--secret-file".to_owned(), secret_file]);
        Self { limiter: Limiter::new(store), arguments, files }
    }

    /// A service on one server.
    pub(crate) fn on(server: &RedisServer) -> Self {
        let url = server.url();
        Self::new(&["--redis", &url], |builder| builder.open(&url).unwrap())
    }

    /// Runs the program with the arguments of the service and these.
    pub(crate) fn inspect(&self, command: &str, arguments: &[&str]) -> Ran {
        let own = self.arguments.iter().map(String::as_str);
        let all: Vec<&str> = std::iter::once(command).chain(own).chain(arguments.iter().copied()).collect();
        let ran = inspect(&all);
        for secret in [SECRET, TOKEN] {
            assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{ran:?}");
        }
        ran
    }

    /// Sends this many requests through a layer.
    async fn charge<K: KeyExtractor>(&self, policy: &Policy, key: K, requests: u64) {
        let limit = RateLimitLayer::new(self.limiter.clone(), policy.clone(), key).fail_closed();
        let app = Router::new().route("/search", get(|| async {})).layer(limit);
        for _ in 0..requests {
            let request = Request::get("/search")
                .header("x-tenant", "Blue & Sons")
                .header("authorization", format!("Bearer {TOKEN}"))
                .extension("2001:db8:1:2:3:4:5:6".parse::<IpAddr>().unwrap())
                .extension(User(17));
            let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        }
    }

    /// Charges requests of one client, and looks at the client with the program, before and after a reset.
    async fn sees_and_resets<K: KeyExtractor>(&self, name: &str, extractor: K, key: &[&str]) {
        let policy = Policy::per_hour(name, 10).unwrap();
        self.charge(&policy, extractor, 3).await;
        let rate = format!("{name}=10/hour");
        let arguments = [&["--policy", &rate], key].concat();

        let standing = self.inspect("peek", &arguments);
        assert_eq!(standing.cells(name)[..4], [name, "10/1h", "3", "7"], "{standing:?}");
        assert!(standing.stderr.is_empty(), "{standing:?}");

        let removed = self.inspect("reset", &arguments);
        assert_eq!(removed.stdout.lines().nth(1).unwrap().trim_start_matches(name).trim(), "3 of 10 units");
        let fresh = self.inspect("peek", &arguments);
        assert_eq!(fresh.cells(name)[..7], [name, "10/1h", "0", "10", "-", "-", "-"], "{fresh:?}");
        assert!(fresh.stderr.contains("nothing is counted for this key"), "{fresh:?}");
        let again = self.inspect("reset", &arguments);
        assert!(again.stdout.ends_with("nothing\n") && again.code == 0, "{again:?}");
    }

    /// Every extractor of the crate.
    async fn sees_and_resets_every_kind_of_key(&self) {
        let token = format!("token:@{}", self.files.path("token"));
        self.sees_and_resets("peer", PeerIp::new(), &["ip:2001:db8:1:2::99"]).await;
        let wide = ClientIp::peer().with_ipv6_prefix(48);
        self.sees_and_resets("site", wide, &["ip/48:2001:db8:1:ffff::"]).await;
        let client = ClientIp::behind_load_balancer(["10.0.0.0/8"]).unwrap().peer_if_missing();
        self.sees_and_resets("client", client, &["ip:2001:db8:1:2::99"]).await;
        self.sees_and_resets("token", ApiKey::bearer(), &[&token]).await;
        self.sees_and_resets("tenant", HeaderKey::new("x-tenant").unwrap(), &["text:Blue & Sons"]).await;
        self.sees_and_resets("user", ExtensionKey::<User>::new(), &["text:17"]).await;
        self.sees_and_resets("route", MatchedPathKey, &["route:/search"]).await;
        self.sees_and_resets("all", GlobalKey, &["global"]).await;
        let tuple = (HeaderKey::new("x-tenant").unwrap(), ApiKey::bearer(), MatchedPathKey);
        self.sees_and_resets("tuple", tuple, &["text:Blue & Sons", &token, "route:/search"]).await;
    }
}

/// What a run of the program has printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The cells of the policy's row.
    pub(crate) fn cells(&self, policy: &str) -> Vec<&str> {
        assert_eq!(self.code, 0, "{self:?}");
        let row = self.stdout.lines().find(|line| line.split_whitespace().next() == Some(policy));
        row.unwrap_or_else(|| panic!("{self:?}")).split_whitespace().collect()
    }
}

pub(crate) fn inspect(arguments: &[&str]) -> Ran {
    let mut command = Command::new(&PROGRAMS.inspect);
    command.env_remove("TOLLGATE_REDIS").env_remove("TOLLGATE_KEY_SECRET");
    run(command.args(arguments))
}

fn run(command: &mut Command) -> Ran {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_what_the_layer_charged_on_one_server() {
    let server = RedisServer::start();
    Service::on(&server).sees_and_resets_every_kind_of_key().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_what_the_layer_charged_behind_sentinels() {
    let trio = Trio::start(Duration::from_secs(60));
    let urls: Vec<String> = trio.sentinels.iter().map(RedisServer::url).collect();
    let arguments = ["--sentinel", &urls[0], "--sentinel", &urls[1], "--master", Trio::NAME];
    let service = Service::new(&arguments, |builder| builder.open_sentinel(&urls, Trio::NAME).unwrap());
    service.sees_and_resets_every_kind_of_key().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_sees_and_resets_what_the_layer_charged_on_a_cluster() {
    let cluster = Cluster::start();
    let url = cluster.nodes[1].url();
    let service = Service::new(&["--cluster", &url], |builder| builder.open_cluster([&url]).unwrap());
    service.sees_and_resets_every_kind_of_key().await;

    // Another number of hash tags is another count; the right one finds it.
    let arguments = ["--cluster", &url, "--hash-tags", "16"];
    let tagged = |builder: RedisStoreBuilder| builder.cluster_hash_tags(16).open_cluster([&url]).unwrap();
    Service::new(&arguments, tagged).sees_and_resets("tags", GlobalKey, &["global"]).await;

    let sharded = Policy::per_hour("sharded", 80).unwrap().with_shards(8);
    service.charge(&sharded, GlobalKey, 3).await;
    let arguments = ["--policy", "sharded=80/hour,shards=8", "global"];
    assert_eq!(service.inspect("peek", &arguments).cells("sharded")[..4], ["sharded", "80/1h", "-", "10"]);
    assert_eq!(service.inspect("reset", &arguments).cells("sharded")[1..].join(" "), "the counts of 8 shards");
    assert_eq!(service.inspect("reset", &arguments).cells("sharded")[1..], ["nothing"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_and_lifts_a_ban_and_leaves_other_clients_and_policies_alone() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let login = Policy::per_hour("login", 1).unwrap().ban_after(2, Duration::from_secs(600));
    let bucket = Policy::per_hour("api", 100).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(20);
    let limiter = &service.limiter;
    for client in ["alice", "bob"] {
        for _ in 0..3 {
            let _ = limiter.check(client, &login, 1).await.unwrap();
        }
        let _ = limiter.check(client, &bucket, 5).await.unwrap();
    }
    let policies =
        ["--policy", "login=1/hour,ban-after=2/10m", "--policy", "api=100/hour,algorithm=token-bucket,burst=20"];
    let alice = [&policies[..], &["text:alice"]].concat();

    let standing = service.inspect("peek", &alice);
    let banned = standing.cells("login");
    assert_eq!(banned[..4], ["login", "1/1h", "-", "0"], "{standing:?}");
    assert!(banned[6].starts_with("9m5") || banned[6] == "10m0s", "{standing:?}");
    assert_eq!(standing.cells("api")[..6], ["api", "100/1h", "burst", "20", "5", "15"], "{standing:?}");

    let only_login = [&policies[..2], &["text:alice"]].concat();
    let removed = service.inspect("reset", &only_login).stdout;
    assert!(removed.contains("the count and a ban of "), "{removed}");
    assert!(limiter.peek("alice", &login).await.unwrap().is_allowed());
    assert_eq!(limiter.peek("alice", &bucket).await.unwrap().available(), Some(15), "another policy keeps its count");
    assert!(!limiter.peek("bob", &login).await.unwrap().is_allowed(), "another client stays banned");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_takes_the_policies_from_the_limits_file_of_the_service() {
    let server = RedisServer::start();
    let service = Service::on(&server);
    let limits = service.files.write(
        "limits.toml",
        "[policies.per-client]\nrate = \"60/min\"\n[policies.daily]\nrate = \"9500/day\"\nalgorithm = \"counter\"\n\
         [default]\npolicies = [\"per-client\", \"daily\"]\n",
    );
    let daily = Policy::per_day("daily", 9_500).unwrap().with_algorithm(Algorithm::SlidingWindowCounter);
    let _ = service.limiter.check("alice", &daily, 500).await.unwrap();

    let all = service.inspect("peek", &["--config", &limits, "text:alice"]);
    assert_eq!(all.cells("daily")[..4], ["daily", "9500/1d", "500", "9000"]);
    assert_eq!(all.cells("per-client")[..4], ["per-client", "60/1m", "0", "60"]);
    let one = service.inspect("peek", &["--config", &limits, "--policy", "daily", "text:alice"]);
    assert_eq!(one.stdout.lines().count(), 2, "{one:?}");

    let unknown = service.inspect("peek", &["--config", &limits, "--policy", "hourly", "text:alice"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.stderr.contains("it has daily, per-client"), "{unknown:?}");
    let broken = service.files.write("broken.toml", "[policies.p]\nrate = \"fast\"\n[default]\npolices = [\"p\"]\n");
    let refused = service.inspect("peek", &["--config", &broken, "text:alice"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.stderr.contains("policies.p.rate: ") && refused.stderr.contains("default.polices: "),
        "{refused:?}"
    );
}

/// The URL and the secret may be in files or in the environment, because other users of a machine can read arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_takes_secrets_from_files_and_from_the_environment() {
    let server = RedisServer::start_with(&["--requirepass", "hunter22"]);
    let url = format!("redis://:hunter22@127.0.0.1:{}", server.port());
    let service = Service::new(&[], |builder| builder.open(&url).unwrap());
    let policy = Policy::per_hour("p", 10).unwrap();
    let _ = service.limiter.check("alice", &policy, 4).await.unwrap();

    let url_file = format!("@{}", service.files.write("url", format!("{url}\n")));
    let arguments = ["peek", "--prefix", "shop:", "--policy", "p=10/hour", "text:alice"];
    let from_environment = run(Command::new(&PROGRAMS.inspect)
        .args(arguments)
        .env("TOLLGATE_REDIS", &url)
        .env("TOLLGATE_KEY_SECRET", SECRET));
    for ran in
        [service.inspect("peek", &["--redis", &url_file, "--policy", "p=10/hour", "text:alice"]), from_environment]
    {
        assert_eq!(ran.cells("p")[..4], ["p", "10/1h", "4", "6"]);
    }
    let wrong = format!("redis://:hunter23@127.0.0.1:{}", server.port());
    let refused = service.inspect("peek", &["--redis", &wrong, "--policy", "p=10/hour", "text:alice"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("WRONGPASS") && !refused.stderr.contains("hunter23"), "{refused:?}");
}

#[test]
fn inspect_refuses_wrong_arguments_with_one_message_and_exit_code_2() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--policy", "p=60/min"];
    let with = |arguments: &[&'static str]| [&["peek"], &redis[..], arguments].concat();
    for (arguments, expected) in [
        (vec![], "no command: write peek, reset, ban, unban, take or give"),
        (vec!["look"], "\"look\" is not a command"),
        (vec!["peek", "--policy", "p=60/min", "text:a"], "no Redis: write --redis"),
        (vec!["peek", "--redis", "redis://127.0.0.1:1", "text:a"], "no policy: write --policy"),
        (vec!["peek", "--redis", "127.0.0.1", "--policy", "p=60/min", "text:a"], "Redis URL"),
        (with(&[]), "no key: name the client by ip:ADDRESS"),
        (with(&["203.0.113.7"]), "\"203.0.113.7\" is not a key: write ip:203.0.113.7, as "),
        (with(&["text:a", "--redis"]), "--redis needs a value"),
        (with(&["text:a", "--redis", "redis://127.0.0.1:1"]), "--redis is there twice"),
        (with(&["text:a", "--plain-keys=yes"]), "--plain-keys takes no value"),
        (with(&["text:a", "--verbose"]), "--verbose is not an option"),
        (with(&["text:a", "--timeout", "soon"]), "--timeout: \"soon\" is not a time"),
        (with(&["text:a", "--hash-tags", "x"]), "--hash-tags: \"x\" is neither a number nor none"),
        (with(&["text:a", "--cluster", "redis://127.0.0.1:1"]), "exclude one another"),
        (with(&["text:a", "--master", "m"]), "--master needs --sentinel"),
        (with(&["text:a", "--client-cert", "/none"]), "--client-cert and --client-key belong together"),
        (with(&["text:a", "--secret-file", "/no/such/file"]), "cannot read /no/such/file: "),
        (with(&["text:a", "--secret-file", "/dev/null"]), "16"),
        (with(&["text:a", "--prefix", "{a}"]), "{a}"),
        (with(&["token:@/no/such/file"]), "cannot read /no/such/file: "),
    ] {
        let ran = inspect(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {ran:?}");
    }
    let help = inspect(&["--help"]);
    assert!(
        help.code == 0 && help.stdout.starts_with("Looks at the counts and the open holds of one client"),
        "{help:?}"
    );
}

#[test]
fn inspect_reports_an_unreachable_redis_with_exit_code_1() {
    let unreachable = format!("redis://127.0.0.1:{}", free_port());
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let silent_url = format!("redis://{}", silent.local_addr().unwrap());
    for (servers, command, message) in [
        (["--redis", &unreachable], "peek", "the store is unavailable: "),
        (["--cluster", &unreachable], "peek", "the store is unavailable: "),
        (["--redis", &unreachable], "reset", "the store is unavailable: "),
        (["--redis", &silent_url], "reset", "the store did not answer in time: no answer within 300ms"),
    ] {
        let arguments = [&[command], &servers[..], &["--timeout", "300ms", "--policy", "p=60/min", "text:a"]].concat();
        let ran = inspect(&arguments);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with(&format!("tollgate-inspect: {message}")), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}
