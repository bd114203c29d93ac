//! Tokio runtimes without timers or without I/O.

use std::cell::{Cell, RefCell};
use std::panic::{set_hook, take_hook};
use std::task::{Context, Poll, Waker};
use std::{future::Future, pin::pin, sync::mpsc, thread, time::Duration};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Check, Error, ErrorKind, Limiter, RedisStore};

use super::policy;
use crate::support::{SilentStore, connect, redis_server::RedisServer};

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// The errors of all operations of a store.
async fn errors(limiter: &Limiter) -> Vec<Error> {
    let check = Check::new("foo", &policy(), 1).and("bar", &policy(), 1);
    vec![
        limiter.check("foo", &policy(), 1).await.unwrap_err(),
        limiter.check_all(check).await.unwrap_err(),
        limiter.reset("foo", &policy()).await.unwrap_err(),
        limiter.ready().await.unwrap_err(),
    ]
}

#[test]
fn a_runtime_without_timers_or_without_io_is_an_error_that_says_what_to_write_and_no_panic() {
    let server = RedisServer::start();
    let url = server.url();
    let before = take_hook();
    set_hook(Box::new(move |info| {
        PANICS.set(PANICS.get() + 1);
        before(info);
    }));
    let runtimes: [fn() -> Runtime; 2] = [
        || Builder::new_current_thread().build().unwrap(),
        || Builder::new_current_thread().enable_time().build().unwrap(),
    ];
    for runtime in runtimes.map(|build| build()) {
        let panics = PANICS.get();
        let stores = [
            RedisStore::open(&url).unwrap(),
            RedisStore::builder().batching(false).open(&url).unwrap(),
            RedisStore::builder().open_cluster([&url]).unwrap(),
        ];
        for limiter in stores.map(Limiter::new) {
            for error in runtime.block_on(errors(&limiter)) {
                assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::StoreMisconfigured, false));
                assert!(error.to_string().contains("build it with `enable_all()`"), "{error}");
            }
        }
        assert!(PANICS.get() <= panics + 1, "more than one panic per runtime");
    }
    let whole = Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = Limiter::new(connect(&url));
    assert!(whole.block_on(limiter.check("k", &policy(), 1)).is_ok());
}

thread_local! {
    /// The limiter that the panic hook calls on this thread.
    static HOOK_LIMITER: RefCell<Option<Limiter>> = const { RefCell::new(None) };
}

#[test]
fn a_panic_hook_that_checks_a_limit_does_not_deadlock() {
    let server = RedisServer::start();
    let before = take_hook();
    set_hook(Box::new(move |info| {
        let limiter = HOOK_LIMITER.with_borrow(Clone::clone);
        match limiter {
            Some(limiter) => {
                let mut check = pin!(limiter.check("k", &policy(), 1));
                let answer = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(answer, Poll::Ready(Err(_))));
            }
            None => before(info),
        }
    }));
    let stores: [fn(&str) -> Limiter; 2] =
        [|url| Limiter::new(RedisStore::open(url).unwrap()), |_| Limiter::new(SilentStore)];
    for (timers, store) in [(false, 0), (true, 0), (false, 1)] {
        let (ended, end) = mpsc::channel();
        let limiter = stores[store](&server.url());
        thread::spawn(move || {
            let mut builder = Builder::new_current_thread();
            let builder = if timers { builder.enable_time() } else { &mut builder };
            let runtime = builder.build().unwrap();
            HOOK_LIMITER.set(Some(limiter.clone()));
            let error = runtime.block_on(limiter.check("k", &policy(), 1)).unwrap_err();
            HOOK_LIMITER.set(None);
            ended.send(error.kind()).unwrap();
        });
        let kind = end.recv_timeout(Duration::from_secs(10)).expect("the check and the hook wait for each other");
        assert_eq!(kind, ErrorKind::StoreMisconfigured);
    }
}

/// The connections that the server has open, without the one that asks.
fn connections(server: &RedisServer) -> usize {
    server.command("CLIENT LIST").matches(" addr=").count() - 1
}

#[test]
fn the_connections_of_runtimes_that_have_ended_are_closed() {
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    for number in 0..40 {
        let mut builder = if number % 2 == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        let runtime = builder.enable_all().build().unwrap();
        assert!(runtime.block_on(limiter.check("k", &policy(), 1)).unwrap().is_allowed());
    }
    // The server notices later that a connection was closed.
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while connections(&server) > 0 {
        assert!(std::time::Instant::now() < end, "{} connections are left", connections(&server));
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn three_hundred_runtimes_at_once_keep_their_connections() {
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url()));
    let runtimes: Vec<_> = (0..300).map(|_| Builder::new_current_thread().enable_all().build().unwrap()).collect();
    let before = server.accepted_connections();
    for _ in 0..6 {
        for runtime in &runtimes {
            assert!(runtime.block_on(limiter.check("k", &policy(), 1)).unwrap().is_allowed());
        }
    }
    // A runtime has up to two connections, the second of which is made while the runtime runs again.
    let dialled = server.accepted_connections() - before;
    assert!(dialled <= 2 * 300 + 1, "{dialled} connections, so runtimes dial anew");
}
