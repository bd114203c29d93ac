//! The lines that a limiter without an observer prints to stderr.

use std::{env, process::Command, time::Duration};

use axum::{Router, routing::get};
use tollgate::observe::{Metrics, Tracing};
use tollgate::{
    GlobalKey, KeyExtractor, Limiter, MemoryStore, PeerIp, RateLimitLayer, RedisStore, Route, rejection::Rejection,
};
use tracing::Level;

use crate::support::{http::get as fetch, per_minute, redis_server::RedisServer};

/// Runs a scenario of `scenario_process` in a separate process and returns the lines of its stderr.
fn stderr_of(scenario: &str, url: &str) -> Vec<String> {
    let scenario_process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "observe::notices::scenario_process", "--ignored", "--nocapture"])
        .env("TOLLGATE_SCENARIO", scenario)
        .env("TOLLGATE_URL", url)
        .output()
        .unwrap();
    let stderr = String::from_utf8(scenario_process.stderr).unwrap();
    assert!(scenario_process.status.success(), "{scenario}: {stderr}");
    let lines: Vec<String> = stderr.lines().map(str::to_owned).collect();
    println!("{scenario}:\n{stderr}");
    lines
}

fn app<K: KeyExtractor, R: Rejection<axum::body::Body>>(layer: RateLimitLayer<K, R>) -> Router {
    Router::new().route("/", get(|| async {})).route("/watch", get(|| async {})).layer(layer)
}

/// Not a test: the process of a scenario. The service has an observer only in the scenarios named after one.
#[tokio::test]
#[ignore = "started by the tests below"]
async fn scenario_process() {
    let scenario = env::var("TOLLGATE_SCENARIO").unwrap();
    let url = env::var("TOLLGATE_URL").unwrap();
    // Ten times the default, because a check that a busy machine delays prints a line too.
    let builder = RedisStore::builder().deadline(Duration::from_millis(500));
    let redis = || Limiter::new(builder.clone().open(&url).unwrap());
    let limit = |limiter: Limiter| RateLimitLayer::new(limiter, per_minute("per-client", 60), GlobalKey);
    let app = match &*scenario {
        "closed" => app(limit(redis()).fail_closed()),
        "filtered" => {
            let subscriber = tracing_subscriber::fmt().with_max_level(Level::ERROR).finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
            app(limit(redis()))
        }
        "memory" => app(limit(Limiter::new(MemoryStore::new()))),
        "metrics" => app(limit(redis().with_observer(Metrics::new()))),
        "no peer" => {
            app(RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_minute("per-client", 60), PeerIp::new()))
        }
        "open" => app(limit(redis())),
        "open beside a fallback" => app(limit(redis().with_local_fallback(MemoryStore::new(), 2))),
        "quiet" => app(limit(redis().without_notices())),
        "two effects" => app(limit(redis()).route("GET /", Route::new().fail_closed())),
        "tracing" => app(limit(redis().with_observer(Tracing::new()))),
        "unmatched" => app(limit(Limiter::new(MemoryStore::new())).route("/serach", Route::new().cost(10))),
        _ => unreachable!("{scenario}"),
    };
    let requests = if scenario == "unmatched" { 10_001 } else { 70 };
    for _ in 0..requests {
        fetch(&app, "/").await;
    }
    if scenario == "two effects" {
        for _ in 0..requests {
            assert_eq!(fetch(&app, "/watch").await.status, 200);
        }
    }
    // Waits for the reply to the store's background query of the eviction policy.
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn wrong_password(server: &RedisServer) -> String {
    server.command("CONFIG SET requirepass right");
    server.url().replace("redis://", "redis://:wrong@")
}

#[test]
fn law_13_a_wrong_password_is_one_line_on_stderr_with_cause_effect_and_remedy() {
    let server = RedisServer::start();
    let url = wrong_password(&server);
    for (scenario, got) in [
        ("open", "pass without a limit (fail_open)"),
        ("open beside a fallback", "pass without a limit (fail_open)"),
        ("closed", "refused with 503 (fail_closed)"),
    ] {
        let lines = stderr_of(scenario, &url);
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.starts_with("tollgate: Limits are not enforced: the store is misconfigured: "), "{line}");
        assert!(line.contains("WRONGPASS"), "{line}");
        assert!(line.contains(got), "{line}");
        assert!(line.ends_with("Correct the login in the store's URL."), "{line}");
        assert!(!line.contains(":wrong"), "{line}");
    }
}

#[test]
fn law_13_a_redis_that_refuses_connections_or_is_full_is_reported_on_stderr() {
    let lines = stderr_of("open", "redis://127.0.0.1:1");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: Limits are not enforced: the store is unavailable: "), "{line}");
    assert!(line.ends_with("Check that the store runs, can be reached from here and takes writes."), "{line}");

    let server = RedisServer::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]);
    let lines = stderr_of("open", &server.url());
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: Limits are not enforced: the store is unavailable: OOM"), "{line}");
    assert!(line.contains("Raise the server's maxmemory"), "{line}");
}

#[test]
fn law_13_stderr_names_what_requests_get_on_each_route_when_it_first_happens() {
    let lines = stderr_of("two effects", "redis://127.0.0.1:1");
    let [first, second] = &lines[..] else { panic!("{lines:#?}") };
    assert!(first.contains(" Requests are refused with 503 (fail_closed). "), "{first}");
    let news = " Checks so far: 1 passed without a limit (fail_open), 70 refused with 503 (fail_closed). ";
    assert!(second.contains(news), "{second}");
}

#[test]
fn law_13_a_frozen_redis_is_reported_on_stderr() {
    let server = RedisServer::start();
    server.signal("STOP");
    let lines = stderr_of("open", &server.url());
    server.signal("CONT");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: Limits are not enforced: "), "{line}");
    assert!(line.contains(" Requests pass without a limit (fail_open). Check that the store "), "{line}");
}

#[test]
fn law_13_a_redis_that_evicts_is_reported_on_stderr() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let lines = stderr_of("open", &server.url());
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: the server's maxmemory-policy is allkeys-lru"), "{line}");
}

#[test]
fn law_13_a_wrong_setup_and_an_unmatched_route_are_reported_on_stderr() {
    let lines = stderr_of("no peer", "");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: Requests are refused because the service is set up wrongly: "), "{line}");
    assert!(line.contains("into_make_service_with_connect_info"), "{line}");

    let lines = stderr_of("unmatched", "");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("tollgate: no request of the first 10000 matched the route \"/serach\""), "{line}");
}

#[test]
fn law_13_warnings_reach_stderr_with_metrics_alone_or_tracing_without_a_subscriber() {
    let server = RedisServer::start();
    let url = wrong_password(&server);
    for scenario in ["metrics", "tracing"] {
        let lines = stderr_of(scenario, &url);
        assert!(lines.len() == 1 && lines[0].starts_with("tollgate: Limits are not enforced"), "{lines:#?}");
    }
}

#[test]
fn a_quiet_limiter_and_a_healthy_limiter_print_nothing() {
    let server = RedisServer::start();
    let url = wrong_password(&server);
    for scenario in ["quiet", "memory"] {
        assert_eq!(stderr_of(scenario, &url), [""; 0], "{scenario}");
    }
}

#[test]
fn law_13_a_subscriber_that_filters_the_lines_out_does_not_silence_them() {
    let server = RedisServer::start();
    let lines = stderr_of("filtered", &wrong_password(&server));
    assert!(lines.len() == 1 && lines[0].starts_with("tollgate: Limits are not enforced"), "{lines:#?}");
}
