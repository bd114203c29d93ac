//! Runtimes that lack something.

use std::{
    cell::Cell,
    panic::{set_hook, take_hook},
};

use tokio::runtime::{Builder, Runtime};
use tollgate::{Check, Error, ErrorKind, Limiter, RedisStore};

use crate::{policy, support::redis_server::RedisServer};

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// All ways to ask a store.
async fn errors(limiter: &Limiter) -> Vec<Error> {
    let check = Check::new("foo", &policy(), 1).and("bar", &policy(), 1).unwrap();
    vec![
        limiter.check("foo", &policy(), 1).await.unwrap_err(),
        limiter.decide(check).await.unwrap_err(),
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
            RedisStore::connect(&url).unwrap(),
            RedisStore::builder().batching(false).connect(&url).unwrap(),
            #[cfg(feature = "cluster")]
            RedisStore::builder().connect_cluster([&url]).unwrap(),
        ];
        for limiter in stores.map(Limiter::new) {
            for error in runtime.block_on(errors(&limiter)) {
                assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Misconfigured, false));
                assert!(error.to_string().contains("build it with `enable_all()`"), "{error}");
            }
        }
        assert!(PANICS.get() <= panics + 1, "found out once for each runtime");
    }
    let whole = Builder::new_current_thread().enable_all().build().unwrap();
    let limiter = Limiter::new(RedisStore::connect(&url).unwrap());
    assert!(whole.block_on(limiter.check("k", &policy(), 1)).is_ok());
}
