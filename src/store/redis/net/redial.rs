//! Dials again in the background, when calls have shown that connections are lost.
//!
//! A connection that broke is replaced by the checkout that comes upon it. After calls without a reply that may be too
//! late: if nobody calls for a while, the next check would find lost connections only, and a dial can take longer than
//! its deadline. So the pools of the store replace theirs at once. Connections that the other end has closed wait for
//! the next checkout: a server that closes idle connections would otherwise be dialled again and again for nobody.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

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

/// The pools of all runtimes to one server.
#[derive(Debug, Default)]
pub(super) struct Redials(Mutex<Vec<Weak<Redial>>>);

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

impl Redials {
    pub(super) fn add(&self, redial: &Arc<Redial>) {
        // A panic under the lock leaves a valid list.
        let mut redials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        redials.retain(|redial| redial.strong_count() > 0);
        redials.push(Arc::downgrade(redial));
    }

    pub(super) fn start_all(&self) {
        // Started without the lock, because a runtime that is shutting down drops the task at once.
        let redials = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        redials.iter().filter_map(Weak::upgrade).for_each(|redial| redial.start());
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
        let (runtime, redials) = (runtime(), Redials::default());
        let (redial, count) = counting(&runtime);
        redials.add(&redial);
        (0..5).for_each(|_| redials.start_all());
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        run(&runtime);
        assert_eq!(count.load(Ordering::SeqCst), 1);
        redials.start_all();
        run(&runtime);
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn each_pool_replaces_its_connections_on_its_own_runtime_until_it_is_dropped() {
        let (runtimes, redials) = ([(); 2].map(|()| runtime()), Redials::default());
        let [(first, of_first), (second, of_second)] = [0, 1].map(|number: usize| counting(&runtimes[number]));
        [&first, &second].into_iter().for_each(|redial| redials.add(redial));
        redials.start_all();
        run(&runtimes[0]);
        assert_eq!((of_first.load(Ordering::SeqCst), of_second.load(Ordering::SeqCst)), (1, 0));
        run(&runtimes[1]);
        drop(first);
        redials.start_all();
        runtimes.iter().for_each(run);
        assert_eq!((of_first.load(Ordering::SeqCst), of_second.load(Ordering::SeqCst)), (1, 2));
    }
}
