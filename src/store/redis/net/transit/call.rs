//! The calls whose replies a server owes.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use super::Transit;

impl Transit {
    /// The reply of a call, which the server owes until the task of the connection has read it. The task of the call
    /// may run much later.
    pub(crate) async fn owes<T>(self: &Arc<Self>, reply: impl Future<Output = T>) -> T {
        let mut reply = pin!(reply);
        let mut debt: Option<Debt> = None;
        poll_fn(|cx| {
            let is_new = debt.is_none();
            let debt = debt.get_or_insert_with(|| Debt(Owed::new(self, cx.waker())));
            let woken = debt.0.polled_by(cx.waker());
            let polled = reply.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&debt.0))));
            if is_new {
                self.queued.fetch_add(1, Ordering::AcqRel);
            }
            if polled.is_pending() {
                debt.0.owe_again_unless_woken(woken);
            }
            polled
        })
        .await
    }
}

/// A call that waits for its reply. The task of the connection wakes it when it has read the reply.
struct Owed {
    transit: Arc<Transit>,
    /// [`WOKEN`] for each time that the call was woken, and [`OWED`] while the server owes the reply.
    state: AtomicUsize,
    waker: Mutex<Waker>,
}

const OWED: usize = 1;
const WOKEN: usize = 2;

impl Owed {
    fn new(transit: &Arc<Transit>, waker: &Waker) -> Arc<Self> {
        transit.begun.fetch_add(1, Ordering::AcqRel);
        transit.owed.fetch_add(1, Ordering::AcqRel);
        let (transit, waker) = (Arc::clone(transit), Mutex::new(waker.clone()));
        Arc::new(Self { transit, state: AtomicUsize::new(OWED), waker })
    }

    /// Records the task that polls the call. Returns how often the call was woken before.
    fn polled_by(&self, waker: &Waker) -> usize {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone_from(waker);
        self.state.load(Ordering::Acquire) & !OWED
    }

    /// Counts the call as owed again: it was woken to be sent. Not if it was woken during this poll, because the reply
    /// may have come.
    fn owe_again_unless_woken(&self, woken: usize) {
        if self.state.compare_exchange(woken, woken | OWED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.transit.owed.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn end(&self) {
        let next = |state: usize| Some((state & !OWED).wrapping_add(WOKEN));
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|state| state);
        if before & OWED > 0 {
            self.transit.owed.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for Owed {
    fn wake(self: Arc<Self>) {
        self.end();
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

/// Ends when the reply has come or the call is given up. A call that is given up does not show that the server answers.
struct Debt(Arc<Owed>);

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.end();
    }
}
