//! Dials again in the background, when calls have shown that connections are lost.
//!
//! A connection that broke is replaced by the checkout that comes upon it. After calls without a reply that may be too
//! late: after a time without calls, the next check would find lost connections only, and a dial can take longer than
//! its deadline. So the pool whose calls have shown it replaces its connections at once. The pools of other runtimes
//! wait for their next check: after a stall of the server, many idle runtimes would dial at once. Connections that the
//! other end has closed wait for the next checkout: a server that closes idle connections would otherwise be dialled
//! again and again although no check needs a connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

use tokio::runtime::Handle;

/// Replaces the lost connections of one pool.
pub(super) struct Redial {
    /// The runtime of the pool.
    runtime: Handle,
    /// Whether a task is about to replace them.
    is_due: Arc<AtomicBool>,
    replace: Box<dyn Fn() -> Replacing + Send + Sync>,
}

/// Takes the lost connections out of a pool, which dials new ones.
pub(super) type Replacing = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Redial {
    /// For a pool of the current runtime.
    pub(super) fn new(replace: impl Fn() -> Replacing + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { runtime: Handle::current(), is_due: Arc::default(), replace: Box::new(replace) })
    }

    /// Replaces the connections on the runtime of the pool: one task, however many calls have found it.
    pub(super) fn start(&self) {
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let (is_due, replacing) = (Arc::clone(&self.is_due), (self.replace)());
        self.runtime.spawn(async move {
            is_due.store(false, Ordering::Release);
            replacing.await;
        });
    }
}

impl fmt::Debug for Redial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redial").field("runtime", &self.runtime.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    fn counting(runtime: &Runtime) -> (Arc<Redial>, Arc<AtomicUsize>) {
        let (_entered, count) = (runtime.enter(), Arc::<AtomicUsize>::default());
        let of_redial = Arc::clone(&count);
        let redial = Redial::new(move || {
            let count = Arc::clone(&of_redial);
            Box::pin(async move {
                count.fetch_add(1, Ordering::SeqCst);
            })
        });
        (redial, count)
    }

    fn run(runtime: &Runtime) {
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn one_task_replaces_connections_however_many_calls_have_found_them_lost() {
        let runtime = runtime();
        let (redial, count) = counting(&runtime);
        (0..5).for_each(|_| redial.start());
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        run(&runtime);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        redial.start();
        run(&runtime);
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
