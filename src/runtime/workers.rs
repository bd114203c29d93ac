//! Workers: tasks that do what is due for all runtimes of a process, one in each runtime that takes part.
//!
//! A runtime may end, may be driven only now and then, or may compute for seconds, and none of this can be seen from
//! outside. So no runtime relies on the worker of another one: each has its own, and all of them do the same job. A job
//! that is overdue is done by the first worker that sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, future};

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::drivers::Driver;

/// What the workers of a process do.
pub(crate) trait Job: Send + Sync + 'static {
    /// Does what is due, without waiting: what takes time is spawned. `here` is the runtime of the caller. Returns when
    /// something is due next, or `None` if nothing is left to do in any runtime.
    fn run(&self, here: runtime::Id) -> Option<Instant>;

    /// Notes that the runtime has ended before its work was done.
    fn on_runtime_end(&self, ended: runtime::Id);
}

/// The workers of a job.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    running: Mutex<HashMap<runtime::Id, Running>>,
}

#[derive(Debug)]
struct Running {
    wake: Arc<Notify>,
    /// When the worker looks next. `None` while it works.
    wakes: Option<Instant>,
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, HashMap<runtime::Id, Running>> {
        // A panic under the lock leaves the map valid, so a poisoned lock is usable.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the current runtime has a worker, which looks at `due` at the latest, and that the workers of
    /// other runtimes look at `elsewhere` at the latest. Starts none without a runtime with timers.
    pub(crate) fn start(
        self: &Arc<Self>,
        due: Instant,
        elsewhere: Option<Instant>,
        job: impl FnOnce() -> Arc<dyn Job>,
    ) {
        let runtime = Handle::try_current().ok();
        let here = runtime.as_ref().map(Handle::id);
        let is_here = {
            let running = self.lock();
            for (id, running) in &*running {
                let due = if Some(*id) == here { Some(due) } else { elsewhere };
                // One that works may have looked before the work came: it looks again.
                if due.is_some_and(|due| running.wakes.is_none_or(|wakes| due < wakes)) {
                    running.wake.notify_one();
                }
            }
            here.is_some_and(|here| running.contains_key(&here))
        };
        let Some(runtime) = runtime.filter(|_| !is_here && Driver::Timers.is_there()) else { return };
        if let Some(wake) = self.register(runtime.id()) {
            let worker = Worker { workers: Arc::clone(self), job: job(), runtime: runtime.id(), wake, is_done: false };
            drop(runtime.spawn(worker.run()));
        }
    }

    /// `None` if the runtime has a worker.
    fn register(&self, runtime: runtime::Id) -> Option<Arc<Notify>> {
        let mut running = self.lock();
        if running.contains_key(&runtime) {
            return None;
        }
        let wake = Arc::<Notify>::default();
        running.insert(runtime, Running { wake: Arc::clone(&wake), wakes: None });
        Some(wake)
    }

    fn set_wakes(&self, runtime: runtime::Id, wakes: Option<Instant>) {
        if let Some(running) = self.lock().get_mut(&runtime) {
            running.wakes = wakes;
        }
    }
}

/// The worker of one runtime.
struct Worker {
    workers: Arc<Workers>,
    job: Arc<dyn Job>,
    runtime: runtime::Id,
    wake: Arc<Notify>,
    is_done: bool,
}

impl Worker {
    async fn run(mut self) {
        loop {
            self.workers.set_wakes(self.runtime, None);
            let Some(due) = self.job.run(self.runtime) else {
                if self.ends() {
                    self.is_done = true;
                    return;
                }
                continue;
            };
            self.workers.set_wakes(self.runtime, Some(due));
            let _ = timeout_at(due, self.wake.notified()).await;
        }
    }

    /// Ends the worker, unless something to do has come just before: the caller that brought it has relied on this
    /// worker.
    fn ends(&mut self) -> bool {
        self.workers.lock().remove(&self.runtime);
        if self.job.run(self.runtime).is_none() {
            return true;
        }
        match self.workers.register(self.runtime) {
            Some(wake) => {
                self.wake = wake;
                false
            }
            // Another worker has started meanwhile.
            None => true,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_done {
            self.workers.lock().remove(&self.runtime);
            self.job.on_runtime_end(self.runtime);
        }
    }
}

/// Whether the current tokio runtime runs new tasks. `false` without a runtime, and while it shuts down.
///
/// tokio has no query for this, so a task is spawned. Called only after another task has ended early.
pub(crate) fn takes_tasks() -> bool {
    let Ok(runtime) = Handle::try_current() else { return false };
    let task = runtime.spawn(future::pending::<()>());
    let is_taken = !task.is_finished();
    task.abort();
    is_taken
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// While it works for the first time, another thread brings work that is due soon.
    struct Interrupted {
        workers: Arc<Workers>,
        start: Instant,
        runs: AtomicUsize,
        is_done: AtomicBool,
    }

    impl Job for Interrupted {
        fn run(&self, _: runtime::Id) -> Option<Instant> {
            if self.runs.fetch_add(1, Ordering::SeqCst) == 0 {
                let runtime = Handle::current();
                let brings = || {
                    let _guard = runtime.enter();
                    self.workers.start(self.start + SOON, None, || unreachable!("the runtime has a worker"));
                };
                thread::scope(|scope| scope.spawn(brings).join().unwrap());
            }
            // It has looked before that work came.
            let is_known = self.runs.load(Ordering::SeqCst) > 1;
            let is_done = self.start.elapsed() >= SOON;
            self.is_done.store(is_done, Ordering::SeqCst);
            Some(self.start + if is_known && !is_done { SOON } else { 100 * SOON })
        }

        fn on_runtime_end(&self, _: runtime::Id) {}
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_comes_while_a_worker_is_busy_is_done_in_time() {
        let (workers, start) = (Arc::<Workers>::default(), Instant::now());
        let (runs, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let job = Arc::new(Interrupted { workers: Arc::clone(&workers), start, runs, is_done });
        workers.start(start + 100 * SOON, None, || Arc::clone(&job) as Arc<dyn Job>);
        sleep(2 * SOON).await;
        assert!(job.is_done.load(Ordering::SeqCst));
    }

    /// Has something to do at these times.
    #[derive(Default)]
    struct Agenda {
        due: Mutex<Vec<Instant>>,
        ended_runtimes: AtomicUsize,
    }

    impl Agenda {
        fn bring(self: &Arc<Self>, workers: &Arc<Workers>, after: Duration) {
            let due = Instant::now() + after;
            self.due.lock().unwrap().push(due);
            workers.start(due, None, || Arc::clone(self) as Arc<dyn Job>);
        }
    }

    impl Job for Agenda {
        fn run(&self, _: runtime::Id) -> Option<Instant> {
            let mut due = self.due.lock().unwrap();
            due.retain(|due| Instant::now() < *due);
            due.iter().min().copied()
        }

        fn on_runtime_end(&self, _: runtime::Id) {
            self.ended_runtimes.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_wakes_for_what_is_due_sooner_and_ends_when_nothing_is_left() {
        let (workers, agenda) = (Arc::<Workers>::default(), Arc::<Agenda>::default());
        for _ in 0..2 {
            agenda.bring(&workers, 100 * SOON);
            sleep(SOON).await;
            agenda.bring(&workers, SOON);
            sleep(2 * SOON).await;
            assert_eq!(agenda.due.lock().unwrap().len(), 1);
            sleep(100 * SOON).await;
            assert!(agenda.due.lock().unwrap().is_empty() && workers.lock().is_empty());
        }
        assert_eq!(agenda.ended_runtimes.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_runtime_without_timers_gets_no_worker_and_the_end_of_another_one_is_noted() {
        for (has_timers, running) in [(false, 0), (true, 1)] {
            let (workers, agenda) = (Arc::<Workers>::default(), Arc::<Agenda>::default());
            let mut builder = runtime::Builder::new_current_thread();
            let builder = if has_timers { builder.enable_time() } else { &mut builder };
            let runtime = builder.build().unwrap();
            runtime.block_on(async { agenda.bring(&workers, SOON) });
            assert_eq!(workers.lock().len(), running);
            drop(runtime);
            assert_eq!((workers.lock().len(), agenda.ended_runtimes.load(Ordering::SeqCst)), (0, running));
        }
    }
}
