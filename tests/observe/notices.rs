//! Notices: the `tracing` warnings of a limiter without an observer. Notices on stderr are tested in `tests/server`.

use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use http::request::Parts;
use tollgate::{
    Error, ErrorKind, GlobalKey, HeaderKey, Key, KeyExtractor, Limiter, ManualClock, MemoryStore, PeerIp, Policy,
    RateLimitLayer, Route, observe::Tracing, rejection::Rejection,
};
use tracing::Level;

use crate::support::{DownStore, FlakyStore, http::get as fetch, log::Log, per_minute, recorder::Recorder};

fn app<K: KeyExtractor, R: Rejection<axum::body::Body>>(layer: RateLimitLayer<K, R>) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer)
}

#[tokio::test]
async fn with_the_tracing_observer_each_warning_is_logged_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(DownStore).with_observer(Tracing::new());
    let layer = RateLimitLayer::new(limiter, per_minute("p", 1), PeerIp::new());
    let layer = layer.on_missing_key(tollgate::MissingKey::ShareOneKey);
    fetch(&app(layer), "/").await;
    let lines = log.take();
    let [setup, store] = &lines[..] else { panic!("{lines:#?}") };
    assert!(
        setup.starts_with("WARN tollgate::setup: requests without a peer address pass without this limit"),
        "{setup}"
    );
    assert!(store.starts_with("WARN tollgate::store: Limits are not enforced: "), "{store}");
}

#[tokio::test]
async fn with_a_subscriber_notices_are_tracing_warnings() {
    // An observer that writes no lines replaces none.
    for limiter in [Limiter::new(DownStore), Limiter::new(DownStore).with_observer(Recorder::default())] {
        let (log, _guard) = Log::start(Level::WARN);
        for _ in 0..10 {
            fetch(&app(RateLimitLayer::new(limiter.clone(), per_minute("p", 1), GlobalKey)), "/").await;
        }
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        let expected = "WARN tollgate::store: Limits are not enforced: the store is unavailable: ";
        assert!(line.starts_with(expected), "{line}");
    }
}

/// A missing key is the fault of a client. A wrong setup is that of the service.
#[tokio::test]
async fn law_13_a_wrong_setup_is_one_warning_also_in_shadow_mode_and_a_missing_key_is_none() {
    for (traced, shadow, said) in [
        (false, false, "Requests are refused because the service is set up wrongly: "),
        (false, true, "Requests pass without a limit, and would be refused without shadow mode, because the "),
        (true, false, "requests are refused: "),
        (true, true, "requests would be refused: "),
    ] {
        let (log, _guard) = Log::start(Level::WARN);
        let limiter = Limiter::new(MemoryStore::new());
        let tracing = Tracing::new().with_clock(ManualClock::default());
        let limiter = if traced { limiter.with_observer(tracing) } else { limiter };
        let key = HeaderKey::new("x-api-key").unwrap();
        let without_key = RateLimitLayer::new(limiter.clone(), per_minute("p", 1), key);
        let without_policy = RateLimitLayer::new(limiter, |_: &Parts, _: &Key| Vec::<Policy>::new(), GlobalKey);
        let apps = [app(without_key.with_shadow(shadow)), app(without_policy.with_shadow(shadow))];
        for app in apps.iter().cycle().take(6) {
            fetch(app, "/").await;
        }
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.starts_with(&format!("WARN tollgate::refusal: {said}")), "{line}");
    }
}

/// A subscriber that calls the limiter, which fails again. A notice under a lock would deadlock.
#[test]
fn law_8_no_notice_is_written_under_a_lock() {
    use tracing_subscriber::layer::SubscriberExt;

    struct CallsLimiter(Limiter);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for CallsLimiter {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            let limiter = self.0.clone();
            std::thread::spawn(move || fails(&limiter)).join().unwrap();
        }
    }

    fn fails(limiter: &Limiter) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(limiter.check("k", &per_minute("p", 1), 1)).unwrap_err();
    }

    let limiter = Limiter::new(DownStore);
    let subscriber = tracing_subscriber::registry().with(CallsLimiter(limiter.clone()));
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || fails(&limiter));
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(10)).expect("a subscriber that calls the limiter deadlocks");
}

#[tokio::test]
async fn a_recovery_and_each_kind_of_failure_have_a_notice() {
    let (log, _guard) = Log::start(Level::WARN);
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone());
    let policy = per_minute("p", 1_000_000);
    let start = Instant::now();
    flaky.fail(Some(Error::new(ErrorKind::Deadline, "late")));
    for _ in 0..3 {
        limiter.check("k", &policy, 1).await.unwrap_err();
    }
    assert_eq!(log.take().len(), 1);
    flaky.fail(None);
    // An outage ends when no check has failed for a second. The limiter uses the system clock, so this takes real time.
    while log.0.lock().unwrap().is_empty() {
        let _ = limiter.check("k", &policy, 1).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "no notice of the recovery");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("WARN tollgate::store: Limits are enforced again after "), "{line}");
    let end = "in which 3 checks had no verdict: 3 returned as errors to callers of the limiter.";
    assert!(line.ends_with(end), "{line}");
    for (kind, what) in [
        (ErrorKind::Overloaded, "use a faster store, or a cluster."),
        (ErrorKind::BadKey, "If another program writes it, set another key prefix."),
    ] {
        flaky.fail(Some(Error::new(kind, "a reason")));
        for _ in 0..10 {
            limiter.check("k", &policy, 1).await.unwrap_err();
        }
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.contains("a reason. ") && line.ends_with(what), "{line}");
    }
}

#[tokio::test]
async fn law_13_each_new_effect_of_an_outage_is_reported_at_once_with_the_numbers_of_all() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(DownStore).with_local_fallback(MemoryStore::new(), 2);
    let layer = RateLimitLayer::new(limiter, per_minute("p", 1_000), GlobalKey)
        .route("/search", Route::new().fail_closed())
        .route("/local", Route::new().fail_local());
    let app = Router::new().fallback(|| async {}).layer(layer);
    for (path, times) in [("/search", 3), ("/watch", 225), ("/local", 1), ("/search", 10), ("/watch", 10)] {
        for _ in 0..times {
            fetch(&app, path).await;
        }
    }
    let lines = log.take();
    let [first, second, third] = &lines[..] else { panic!("{lines:#?}") };
    assert!(first.contains(" Requests are refused with 503 (fail_closed). "), "{first}");
    let news = " Checks so far: 1 passed without a limit (fail_open), 3 refused with 503 (fail_closed). ";
    assert!(second.contains(news), "{second}");
    let news = " Checks so far: 225 passed without a limit (fail_open), 3 refused with 503 (fail_closed), \
                1 judged by this instance's share (fail_local). ";
    assert!(third.contains(news), "{third}");
}

#[tokio::test]
async fn law_13_a_new_cause_of_an_outage_is_reported_at_once_with_its_remedy_and_each_cause_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let flaky = FlakyStore::default();
    let limiter = Limiter::new(flaky.clone());
    let slow = || Error::new(ErrorKind::Deadline, "no answer within 50ms");
    let wrong = || Error::new(ErrorKind::StoreMisconfigured, "WRONGPASS invalid username-password pair");
    let refused = || Error::new(ErrorKind::Unavailable, "Connection refused");
    for cause in [slow(), wrong(), slow(), refused(), wrong(), refused()] {
        flaky.fail(Some(cause));
        for _ in 0..3 {
            limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
        }
    }
    let lines = log.take();
    let [first, second, third] = &lines[..] else { panic!("{lines:#?}") };
    assert!(first.contains("50ms") && first.ends_with("not slow or frozen, and the network to it."), "{first}");
    assert!(second.contains("WRONGPASS") && second.contains("Correct the login in the store's URL."), "{second}");
    assert!(second.contains("4 returned as errors") || second.contains("4 checks had no verdict"), "{second}");
    assert!(third.contains("refused") && third.contains("Check that the store runs"), "{third}");
    // Texts that differ each time do not fill a log.
    for number in 0..100 {
        flaky.fail(Some(Error::new(ErrorKind::Unavailable, format!("cause {number}"))));
        limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
    }
    let lines = log.take();
    let named = |line: &String| (0..5).find(|number| line.contains(&format!(" cause {number}. ")));
    assert_eq!(lines.iter().map(named).collect::<Vec<_>>(), [0, 1, 2, 3, 4].map(Some), "{lines:#?}");
}

/// The causes are texts of the Redis store, which the tests of servers with TLS assert.
#[tokio::test]
async fn law_13_each_mistake_of_certificates_has_a_remedy_of_its_own() {
    for (cause, remedy) in [
        (
            "is not valid for the name 127.0.0.1; it is valid for a.example",
            "Use a host of the certificate in the store's",
        ),
        (
            "has expired on Fri, 01 Jan 2021 00:00:00 GMT",
            "Renew the certificate, or correct the clock of this machine.",
        ),
        ("is valid from Thu, 01 Jan 2099 00:00:00 GMT", "Correct the clock of this machine, or replace"),
        ("is from an authority that is not trusted", "Set the authority with `RedisStoreBuilder::root_certificates`."),
    ] {
        let (log, _guard) = Log::start(Level::WARN);
        let flaky = FlakyStore::default();
        let limiter = Limiter::new(flaky.clone());
        flaky.fail(Some(Error::new(ErrorKind::StoreMisconfigured, format!("the server's certificate {cause}"))));
        limiter.check("k", &per_minute("p", 1), 1).await.unwrap_err();
        let lines = log.take();
        assert!(lines.len() == 1 && lines[0].contains(cause) && lines[0].contains(remedy), "{cause}: {lines:#?}");
        assert!(!lines[0].contains("its login and its permissions"), "{lines:#?}");
    }
}
