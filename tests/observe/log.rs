//! The `tracing` events of the observer [`Tracing`].

use std::time::Duration;

use axum::{Router, routing::get};
use tollgate::observe::{Fingerprint, Tracing};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, Error, ErrorKind, FailurePolicy, GlobalKey, HeaderKey, Key, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, Route, policy::HoldSettings,
};
use tracing::Level;

use super::fill_a_store;
use crate::support::unhealthy_store::{Health, UnhealthyStore};
use crate::support::{DownStore, FlakyStore, SilentStore, per_minute};
use crate::support::{breaking::BreakingStore, http::get as fetch, log::Log};

#[tokio::test]
async fn denials_are_debug_events_with_a_fingerprint() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let store = MemoryStore::new().with_clock(ManualClock::default());
    let limiter = Limiter::new(store).with_observer(Tracing::new());
    let (narrow, wide) = (per_minute("narrow", 1), per_minute("wide", 9));
    for _ in 0..2 {
        let _ = limiter.check_all(Check::new("alice", &narrow, 1).and("alice", &wide, 1)).await.unwrap();
    }
    let lines = log.take();
    let [near, denied] = &lines[..] else { panic!("{lines:?}") };
    assert!(near.starts_with("DEBUG tollgate::near_limit: near the limit policy=\"narrow\" "), "{near}");
    let key = Fingerprint::of(&Key::from("alice"));
    let expected = format!(
        "DEBUG tollgate::decision: denied policy=\"narrow\" key={key} cost=1 remembered=false retry_after_ms=60000"
    );
    assert!(denied.starts_with(&expected), "{denied}");
}

#[tokio::test]
async fn an_allowed_check_is_a_trace_event_for_each_policy_that_allows_it() {
    let (log, _guard) = Log::start(Level::TRACE);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    let (enforced, tried) = (per_minute("enforced", 9), per_minute("tried", 1).with_shadow(true));
    let _ = limiter.check_all(Check::new("alice", &enforced, 2).and("alice", &tried, 2)).await.unwrap();
    let mut lines = log.take();
    lines.retain(|line| line.contains("tollgate::decision"));
    let [would_deny, allowed] = &lines[..] else { panic!("{lines:?}") };
    assert!(would_deny.starts_with("DEBUG tollgate::decision: would be denied policy=\"tried\" "), "{would_deny}");
    let key = Fingerprint::of(&Key::from("alice"));
    let expected = format!("TRACE tollgate::decision: allowed policy=\"enforced\" key={key} cost=2 ");
    assert!(allowed.starts_with(&expected), "{allowed}");
}

#[tokio::test]
async fn warnings_come_once_a_second_and_say_how_many_were_left_out() {
    let (log, _guard) = Log::start(Level::INFO);
    let clock = ManualClock::default();
    let limiter = Limiter::new(DownStore).with_observer(Tracing::new().with_clock(clock.clone()));
    let fail = async |times| {
        for _ in 0..times {
            limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
        }
    };
    let warning = |line: &str, left_out: u64| {
        line.starts_with("WARN tollgate::store: Limits are not enforced: the store is unavailable: ")
            && line.contains(" cause=\"unavailable\"")
            && line.contains(&format!(" left_out={left_out} "))
    };
    fail(100).await;
    let lines = log.take();
    assert!(lines.len() == 1 && warning(&lines[0], 0), "{lines:?}");
    clock.advance(Duration::from_micros(999_999));
    fail(1).await;
    assert!(log.take().is_empty());
    clock.advance(Duration::from_micros(1));
    fail(5).await;
    let lines = log.take();
    assert!(lines.len() == 1 && warning(&lines[0], 100), "{lines:?}");
    // A clock that is set back does not suppress warnings until it has caught up.
    for now_us in [1_767_222_000_000_000, 1_000_000] {
        clock.set_us(now_us);
        fail(1).await;
        assert_eq!(log.take().len(), 1, "{now_us}");
    }
}

#[tokio::test]
async fn each_cause_has_its_own_warning_and_only_a_bad_key_has_a_fingerprint() {
    let (log, _guard) = Log::start(Level::INFO);
    let clock = ManualClock::default();
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone()).with_observer(Tracing::new().with_clock(clock));
    for kind in [ErrorKind::BadKey, ErrorKind::Deadline, ErrorKind::StoreMisconfigured, ErrorKind::Unavailable] {
        flaky.fail(Some(Error::new(kind, "a reason")));
        for _ in 0..10 {
            limiter.check("alice", &per_minute("p", 1), 1).await.unwrap_err();
        }
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let key = format!(" key={}", Fingerprint::of(&Key::from("alice")));
        assert_eq!(line.contains(&key), kind == ErrorKind::BadKey, "{line}");
        assert!(line.contains("a reason"), "{line}");
    }
}

#[tokio::test]
async fn a_recovery_is_logged_once_with_the_length_of_the_outage() {
    let (log, _guard) = Log::start(Level::INFO);
    let clock = ManualClock::default();
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone()).with_observer(Tracing::new().with_clock(clock.clone()));
    let policy = per_minute("p", 100);
    let check = || limiter.check("k", &policy, 1);
    let _ = check().await.unwrap();
    assert!(log.take().is_empty());
    flaky.fail(Some(Error::new(ErrorKind::Unavailable, "gone")));
    for _ in 0..30 {
        check().await.unwrap_err();
        clock.advance(Duration::from_millis(100));
    }
    assert_eq!(log.take().len(), 3);
    flaky.fail(None);
    for _ in 0..3 {
        let _ = check().await.unwrap();
    }
    assert!(log.take().is_empty(), "a check failed less than a second ago");
    clock.advance(Duration::from_secs(1));
    let _ = limiter.check("k", &Policy::blocked("blocked").unwrap(), 1).await.unwrap();
    assert!(log.take().is_empty(), "the store was not asked");
    for _ in 0..3 {
        let _ = check().await.unwrap();
    }
    let recovered = "INFO tollgate::store: the store answers again; without it: 30 returned as errors to callers of the \
                     limiter outage_ms=3000 failed=30";
    assert_eq!(log.take(), [recovered]);
}

/// Such as a Redis whose memory is full: it denies what is above the limit, and refuses to charge anything else.
#[tokio::test]
async fn a_store_that_answers_some_checks_has_not_recovered_and_the_next_outage_leaves_none_of_the_last_out() {
    let (log, _guard) = Log::start(Level::INFO);
    let clock = ManualClock::default();
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone()).with_observer(Tracing::new().with_clock(clock.clone()));
    let check = async |fails: bool| {
        flaky.fail(fails.then(|| Error::new(ErrorKind::Unavailable, "OOM")));
        assert_eq!(limiter.check("k", &per_minute("p", 10_000), 1).await.is_err(), fails);
    };
    for _ in 0..2_500 {
        check(true).await;
        check(false).await;
        clock.advance(Duration::from_millis(1));
    }
    let lines = log.take();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.contains(" Limits are not enforced: ")), "{lines:#?}");
    clock.advance(Duration::from_secs(1));
    check(false).await;
    assert!(log.take()[0].contains(" outage_ms=2499 failed=2500"));
    check(true).await;
    assert!(log.take()[0].contains(" left_out=0 "));
}

#[tokio::test(start_paused = true)]
async fn a_warning_while_the_breaker_is_open_names_what_has_opened_it() {
    let (log, _guard) = Log::start(Level::WARN);
    let clock = ManualClock::default();
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store).with_observer(Tracing::new().with_clock(clock.clone()));
    let mut is_open = false;
    for _ in 0..200 {
        let error = limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
        is_open |= error.to_string().contains("breaker");
        clock.advance(Duration::from_millis(100));
    }
    assert!(is_open, "the breaker has not opened");
    let lines = log.take();
    let warnings = lines.iter().filter(|line| line.contains("tollgate::store"));
    assert!(warnings.clone().count() > 10, "{lines:#?}");
    for line in warnings {
        assert!(line.contains("did not answer in time") && line.contains("cause=\"deadline\""), "{line}");
    }
}

#[tokio::test]
async fn law_13_each_new_effect_of_an_outage_is_a_warning_at_once_and_the_recovery_counts_all() {
    let (log, _guard) = Log::start(Level::INFO);
    let clock = ManualClock::default();
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone()).with_observer(Tracing::new().with_clock(clock.clone()));
    let layer = RateLimitLayer::new(limiter, per_minute("p", 100), GlobalKey);
    let app = Router::new().fallback(|| async {}).layer(layer.route("/search", Route::new().fail_closed()));
    flaky.fail(Some(Error::new(ErrorKind::Unavailable, "gone")));
    for (path, times) in [("/search", 3), ("/watch", 225), ("/search", 5)] {
        for _ in 0..times {
            fetch(&app, path).await;
        }
    }
    let lines = log.take();
    let [first, second] = &lines[..] else { panic!("{lines:#?}") };
    assert!(first.contains(" Requests are refused with 503 (fail_closed). "), "{first}");
    let news = " Checks so far: 1 passed without a limit (fail_open), 3 refused with 503 (fail_closed). ";
    assert!(second.contains(news) && second.contains(" left_out=2 "), "{second}");
    clock.advance(Duration::from_secs(1));
    fetch(&app, "/watch").await;
    let lines = log.take();
    let [repeat] = &lines[..] else { panic!("{lines:#?}") };
    let all = "226 passed without a limit (fail_open), 8 refused with 503 (fail_closed)";
    assert!(repeat.contains(&format!(" Checks so far: {all}. ")) && repeat.contains(" left_out=229 "), "{repeat}");
    flaky.fail(None);
    fetch(&app, "/watch").await;
    clock.advance(Duration::from_secs(1));
    fetch(&app, "/watch").await;
    let recovered =
        format!("INFO tollgate::store: the store answers again; without it: {all} outage_ms=1000 failed=234");
    assert_eq!(log.take(), [recovered]);
}

#[tokio::test]
async fn the_warning_of_an_instance_that_does_not_know_its_share_says_that_requests_are_refused() {
    let (log, _guard) = Log::start(Level::INFO);
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), None).with_observer(Tracing::new());
    let layer = RateLimitLayer::new(limiter, per_minute("p", 100), GlobalKey).fail_local();
    assert_eq!(fetch(&Router::new().fallback(|| async {}).layer(layer), "/").await.status, 503);
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.contains(" Requests are refused with 503 (fail_local): the number of instances is "), "{line}");
}

#[tokio::test]
async fn the_decision_of_the_failure_policy_is_a_debug_event_after_the_warning() {
    for (failure, outcome) in [(FailurePolicy::Open, "open"), (FailurePolicy::Closed, "closed")] {
        let (log, _guard) = Log::start(Level::DEBUG);
        let limiter = Limiter::new(DownStore).with_observer(Tracing::new());
        let layer = RateLimitLayer::new(limiter, per_minute("p", 1), GlobalKey);
        let layer = if failure == FailurePolicy::Open { layer.fail_open() } else { layer.fail_closed() };
        fetch(&Router::new().fallback(|| async {}).layer(layer), "/").await;
        let lines = log.take();
        assert!(lines[0].starts_with("WARN tollgate::store"), "{lines:?}");
        assert!(lines[1].starts_with("DEBUG tollgate::decision: decided without the store policy=\"p\""), "{lines:?}");
        assert!(lines[1].contains(&format!("outcome=\"{outcome}\"")), "{lines:?}");
    }
}

/// A store that gets more checks than it can answer.
#[derive(Debug)]
struct CrowdedStore;

impl Store for CrowdedStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        Answer::Ready(Err(Error::new(ErrorKind::Overloaded, "too many checks")))
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

#[tokio::test]
async fn the_page_for_the_night_finds_the_clients_of_an_overload_in_the_log() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let limiter = Limiter::new(CrowdedStore).with_observer(Tracing::new());
    let layer = RateLimitLayer::new(limiter, per_minute("per-client", 60), GlobalKey);
    assert_eq!(fetch(&Router::new().route("/watch", get(|| async {})).layer(layer), "/watch").await.status, 503);
    let lines = log.take();
    assert!(lines[0].contains("Requests are refused with 503: "), "{lines:?}");
    let page = include_str!("../../docs/on-call.md");
    assert!(page.contains("grep 'outcome=\"overloaded\"'"));
    let notices =
        page.split("grep -E '").nth(1).and_then(|rest| rest.split('\'').next()).expect("a search for notices");
    assert!(notices.split('|').any(|words| lines[0].contains(words)), "{notices}: {lines:?}");
    let end = "Limits are enforced again after 42s in which 8 checks had no verdict: 8 refused with 503 (fail_closed).";
    assert!(!notices.split('|').any(|words| end.contains(words)), "the notice of the end names no cause");
    let shown = page.lines().find(|line| line.contains(" 4711 policy=")).expect("the page has an example");
    let key = |line: &str| line.split("key=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let shown = shown.replace(&key(shown), &key(&lines[1]));
    assert!(lines[1].contains("outcome=\"overloaded\""), "{lines:?}");
    assert!(lines[1].contains(shown.split_once("4711 ").unwrap().1), "{shown}: {lines:?}");
}

#[tokio::test]
async fn an_open_breaker_is_a_warning_a_closed_one_is_info_and_probes_are_not_logged() {
    let (log, _guard) = Log::start(Level::INFO);
    let store = BreakingStore::open(Tracing::new()).await;
    // A probe fails, and the breaker opens again.
    store.probe().await;
    store.close().await;
    let mut lines = log.take();
    lines.retain(|line| line.contains("tollgate::breaker"));
    assert_eq!(
        lines,
        [
            "WARN tollgate::breaker: open: the store is not asked from=closed to=open",
            "INFO tollgate::breaker: closed: the store is asked from=probing to=closed",
        ]
    );
}

#[tokio::test]
async fn a_misconfiguration_is_warned_of_once_a_second_and_a_missing_key_is_a_debug_event() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let clock = ManualClock::default();
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new().with_clock(clock.clone()));
    let no_peer = tollgate::PeerIp::new();
    let misconfigured =
        Router::new().fallback(|| async {}).layer(RateLimitLayer::new(limiter.clone(), per_minute("p", 1), no_peer));
    for _ in 0..5 {
        fetch(&misconfigured, "/").await;
    }
    clock.advance(Duration::from_secs(1));
    fetch(&misconfigured, "/").await;
    let lines = log.take();
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        first.starts_with("WARN tollgate::refusal: requests are refused: the peer address is not known"),
        "{first}"
    );
    assert!(first.contains("into_make_service_with_connect_info") && first.ends_with("left_out=0"), "{first}");
    assert!(second.ends_with("left_out=4"), "{second}");

    let key = HeaderKey::new("x-api-key").unwrap();
    let app = Router::new().fallback(|| async {}).layer(RateLimitLayer::new(limiter, per_minute("p", 1), key));
    fetch(&app, "/").await;
    let expected = "DEBUG tollgate::refusal: refused without a check: header x-api-key is missing cause=\"missing_key\" \
                    method=\"GET\"";
    assert_eq!(log.take(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn abandoned_checks_resets_and_warnings_are_logged() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let limiter = Limiter::new(SilentStore).with_observer(Tracing::new());
    let check = limiter.check("alice", &per_minute("p", 1), 1);
    tokio::time::timeout(Duration::from_millis(1), check).await.unwrap_err();
    Limiter::new(MemoryStore::new()).with_observer(Tracing::new()).reset("alice", &per_minute("p", 1)).await.unwrap();
    fill_a_store(Tracing::new());
    let lines = log.take();
    let [abandoned, reset, warning] = &lines[..] else { panic!("{lines:?}") };
    let key = Fingerprint::of(&Key::from("alice"));
    let expected = format!("DEBUG tollgate::decision: dropped before a verdict policy=\"p\" key={key} cost=1 ");
    assert!(abandoned.starts_with(&expected), "{abandoned}");
    assert!(reset.starts_with(&format!("DEBUG tollgate::reset: reset policy=\"p\" key={key} found=false ")), "{reset}");
    assert!(warning.starts_with("WARN tollgate::setup: the memory store is full"), "{warning}");
}

#[tokio::test]
async fn ends_of_holds_are_logged_without_the_key() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let policy = per_minute("p", 10).with_holds(HoldSettings::new());
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    limiter.hold("alice", &policy, 3).await.unwrap().into_result().unwrap().settle(2).await.unwrap();
    let key = Fingerprint::of(&Key::from("alice"));
    let expected = format!("DEBUG tollgate::hold: a hold has ended policy=\"p\" key={key} held=3 actual=2 end=settled");
    assert_eq!(log.take(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn changes_by_hand_and_leases_are_logged_without_the_key() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Tracing::new());
    limiter.record("alice", &per_minute("plain", 9), 3).await.unwrap();
    let leased = per_minute("leased", 10_000).with_lease(1_000);
    for _ in 0..50 {
        assert!(limiter.check("alice", &leased, 1).await.unwrap().is_allowed());
    }
    limiter.close().await;
    let mut lines = log.take();
    lines.retain(|line| line.contains("tollgate::by_hand") || line.contains("tollgate::lease"));
    let [changed, started, ended] = &lines[..] else { panic!("{lines:?}") };
    let key = Fingerprint::of(&Key::from("alice"));
    let expected = format!("by_hand: changed by hand policy=\"plain\" key={key} change=Record(3) changed=3 ");
    assert!(changed.starts_with(&format!("DEBUG tollgate::{expected}")), "{changed}");
    for (line, what) in [(started, "started"), (ended, "ended")] {
        assert_eq!(*line, format!("DEBUG tollgate::lease: a lease has {what} policy=\"leased\" key={key}"));
    }
}
