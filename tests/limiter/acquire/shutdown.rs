//! Callers whose runtime shuts down or has ended.

use std::{sync::mpsc, thread};

use tokio::runtime::{Builder, Handle};

use super::*;

/// Waits with `Handle::block_on` for a unit of a count that is spent.
fn block_on(handle: &Handle) -> Result<Decision, Error> {
    let (limiter, policy) = (Limiter::new(MemoryStore::new()), bucket(1));
    assert!(limiter.try_check(KEY, &policy, 1).unwrap().is_allowed());
    handle.block_on(limiter.acquire(KEY, &policy, 1).within(60 * SECOND))
}

#[test]
fn a_caller_on_a_runtime_that_has_ended_gets_an_error_at_once() {
    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for runtime in runtimes.map(|mut builder| builder.enable_all().build().unwrap()) {
        let handle = runtime.handle().clone();
        drop(runtime);
        let (end, ended) = mpsc::channel();
        thread::spawn(move || end.send(block_on(&handle)));
        let error = ended.recv_timeout(10 * SECOND).expect("the caller does not wait for ever").unwrap_err();
        assert!(error.to_string().contains("the runtime is shutting down"), "{error}");
        assert!(!error.may_have_charged());
    }
}

/// The end of a process after SIGTERM: the runtime is dropped while a blocking task waits for a unit.
#[test]
fn a_caller_does_not_keep_its_runtime_from_shutting_down() {
    /// Tells when the runtime drops its tasks.
    struct OnShutdown(mpsc::Sender<()>);

    impl Drop for OnShutdown {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (begin, begun) = mpsc::channel();
        let on_shutdown = OnShutdown(begin);
        runtime.spawn(async move {
            let _on_shutdown = on_shutdown;
            std::future::pending::<()>().await;
        });
        let handle = runtime.handle().clone();
        let waiting = runtime.spawn_blocking(move || {
            begun.recv().unwrap();
            assert!(block_on(&handle).is_err());
        });
        drop(runtime);
        assert!(waiting.is_finished());
        end.send(())
    });
    ended.recv_timeout(10 * SECOND).expect("the runtime shuts down");
}
