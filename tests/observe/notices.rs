//! What a limiter says through `tracing` without an observer of the user's. What it writes to stderr is in `server-tests`.

use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use tollgate::{
    Error, ErrorKind, GlobalKey, KeyExtractor, Limiter, PeerIp, RateLimitLayer, observe::Tracing, rejection::Rejection,
};
use tracing::Level;

use crate::support::{DownStore, FlakyStore, http::get as fetch, log::Log, per_minute};

fn app<K: KeyExtractor, R: Rejection<axum::body::Body>>(layer: RateLimitLayer<K, R>) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer)
}

#[tokio::test]
async fn where_tracing_observes_each_thing_is_told_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(DownStore).with_observer(Tracing::new());
    let layer = RateLimitLayer::new(limiter, per_minute("p", 1), PeerIp::default());
    let layer = layer.on_missing_key(tollgate::MissingKey::ShareOneBucket);
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
async fn where_a_subscriber_listens_the_lines_are_tracing_warnings() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(DownStore);
    for _ in 0..10 {
        fetch(&app(RateLimitLayer::new(limiter.clone(), per_minute("p", 1), GlobalKey)), "/").await;
    }
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("WARN tollgate::store: Limits are not enforced: the store is unavailable: "), "{line}");
}

/// A log that calls the limiter itself, which fails again: it would wait for itself for ever.
#[test]
fn law_8_no_line_is_written_under_a_lock() {
    use tracing_subscriber::layer::SubscriberExt;

    struct Calls(Limiter);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Calls {
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
    let subscriber = tracing_subscriber::registry().with(Calls(limiter.clone()));
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tracing::subscriber::with_default(subscriber, || fails(&limiter));
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(10)).expect("a log that calls the limiter hangs");
}

#[tokio::test]
async fn a_recovery_is_told_and_so_is_each_kind_of_failure() {
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
    // An outage is over when nothing has failed for a second; the limiter's own clock is the machine's.
    while log.0.lock().unwrap().is_empty() {
        limiter.check("k", &policy, 1).await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(10), "never told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.starts_with("WARN tollgate::store: Limits are enforced again after "), "{line}");
    assert!(line.ends_with("in which 3 checks had no verdict."), "{line}");
    for (kind, what) in [
        (ErrorKind::Overloaded, "use a faster store, or a cluster."),
        (ErrorKind::BadKey, "delete that key, or set another key prefix."),
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
