//! Runtimes whose time is that of the world, and which run the same tasks in the same order.

use std::cell::{Cell, RefCell};
use std::task::{Poll, Waker};
use std::{future::poll_fn, time::Duration};

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::time::ms;

thread_local! {
    /// Who waits for the runtime to have nothing to do.
    static WAITS_FOR_REST: RefCell<Rest> = const { RefCell::new(Rest::Nobody) };
}

enum Rest {
    Nobody,
    Waits(Waker),
    Came,
}

/// A runtime on the current thread. Its clock stands still until the world moves it.
pub(super) fn new() -> Runtime {
    let mut builder = Builder::new_current_thread();
    // Without I/O, which needs system calls in each step: connections are those of the world.
    builder.enable_time().start_paused(true).on_thread_park(rest);
    // Tasks that other threads wake would be preferred every few tasks, and the count is not the same in each run.
    builder.global_queue_interval(u32::MAX).build().expect("a runtime starts")
}

/// The runtime has nothing to do.
fn rest() {
    WAITS_FOR_REST.with_borrow_mut(|rest| {
        if let Rest::Waits(waker) = std::mem::replace(rest, Rest::Nobody) {
            *rest = Rest::Came;
            waker.wake();
        }
    });
}

/// Waits until all tasks of the runtime wait.
async fn until_rest() {
    poll_fn(|cx| {
        WAITS_FOR_REST.with_borrow_mut(|rest| match rest {
            Rest::Came => {
                *rest = Rest::Nobody;
                Poll::Ready(())
            }
            _ => {
                *rest = Rest::Waits(cx.waker().clone());
                Poll::Pending
            }
        })
    })
    .await;
}

/// Lets the runtime do what has arrived, then lets a millisecond pass, and more if it stood still, and lets it do what
/// is due.
pub(super) fn drive(runtime: &Runtime, missed: u64) {
    runtime.block_on(async {
        if missed > 0 {
            tokio::time::advance(ms(missed)).await;
        }
        // The time passes when all tasks wait.
        tokio::time::sleep(ms(1)).await;
        until_rest().await;
    });
}

/// tokio ends the tasks of a runtime in an order that depends on their numbers modulo this.
const TASK_GROUPS: u64 = 4;

/// Starts the numbers of tasks anew, as far as their order depends on them.
pub(crate) fn align_task_numbers() {
    let runtime = new();
    let number = || {
        let task = runtime.spawn(async {});
        task.id().to_string().parse::<u64>().unwrap_or(0)
    };
    while number() % TASK_GROUPS != 0 {}
}

/// The largest difference between the clocks of a runtime and of the one before it. Those of the three runtimes of a
/// process differ by less than a microsecond.
const CLOSE: Duration = Duration::from_nanos(400);
/// A tick of a runtime's clock.
const TICK_NANOS: u32 = 1_000_000;
const TICK: Duration = Duration::from_millis(1);
/// By how much the next attempt is corrected at most. Less and less, because the machine is late now and then.
const FIRST_CORRECTION: Duration = Duration::from_micros(4);
const LAST_CORRECTION: Duration = Duration::from_nanos(50);

thread_local! {
    /// How long before its clock starts the start of a runtime begins, and by how much that is corrected at most.
    static LEAD: Cell<(Duration, Duration)> = const { Cell::new((Duration::from_micros(1), FIRST_CORRECTION)) };
}

/// A further runtime of a process, beside the one that was made before it.
///
/// The process compares times of all of its runtimes. A paused clock starts at the real time, and moves in
/// milliseconds, so a runtime is made until its clock is ahead of the other one by whole milliseconds and less than
/// [`CLOSE`]. Then it is moved to nearly the same time. The times of the crate are whole microseconds, and the clocks
/// are always in the same order: no comparison depends on the real time.
pub(super) fn beside(before: &Runtime) -> Runtime {
    let now_of = |runtime: &Runtime| runtime.block_on(async { Instant::now() });
    let target = now_of(before);
    // How far a time is from the next one at which the clock may start, before or after it.
    let until_tick = |time: Instant| {
        let behind = target.saturating_duration_since(time);
        Duration::from_nanos((behind.subsec_nanos() % TICK_NANOS).into())
    };
    loop {
        let (lead, most) = LEAD.get();
        while until_tick(Instant::from_std(std::time::Instant::now())) > lead {}
        let second = new();
        let behind = target.saturating_duration_since(now_of(&second));
        let early = until_tick(now_of(&second));
        let late = TICK - early;
        if late < CLOSE {
            let whole = ms(u64::try_from(behind.as_millis()).unwrap_or(0) + 1);
            second.block_on(tokio::time::advance(whole));
            return second;
        }
        let corrected = match early < late {
            true => lead.saturating_sub(most.min((early + CLOSE / 2) / 2)),
            false => (lead + most.min((late - CLOSE / 2) / 2)).min(TICK / 2),
        };
        LEAD.set((corrected, (most / 2).max(LAST_CORRECTION)));
    }
}
