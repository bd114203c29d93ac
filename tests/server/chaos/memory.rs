//! Memory and tasks stay bounded during an outage at full load.

use std::{thread, time::Duration};

use crate::load::{Load, Workers};
use crate::scenario::{ONE_SECOND_US, outage, print_line, undisturbed};
use crate::{environment::Environment, report::Activity, target::Target};

/// The memory in bytes that an outage may add.
const MAX_GROWTH: u64 = 1 << 20;
/// The tasks that an outage may add: dials in flight, and drivers of connections that are being replaced.
const MAX_NEW_TASKS: u64 = 8;

#[test]
fn memory_and_tasks_stay_flat_while_the_server_is_silent() {
    assert_flat(Duration::from_secs(8));
}

#[test]
#[ignore = "takes a minute: tests/run --long"]
fn long_memory_and_tasks_stay_flat_while_the_server_is_silent_for_a_minute() {
    assert_flat(Duration::from_secs(60));
}

fn assert_flat(hold: Duration) {
    undisturbed(|| {
        let mut environment = Environment::start(&[], false, hold);
        let workers = Workers::start(&environment.address(), &["closed"], Load::FULL);
        // The healthy load allocates its memory first.
        thread::sleep(Duration::from_secs(2));
        let (from_us, recovery) = outage(&mut environment, &workers, |environment| {
            environment.server.signal("STOP");
            environment.hold();
            environment.server.signal("CONT");
        });
        // Tasks that leaked during the outage would still run after this second.
        thread::sleep(Duration::from_secs(1));
        let healed_us = recovery.serves_again_us + recovery.us;
        for seen in workers.stop().seen {
            let most = |from: u64, until: u64| most(&seen, from, until);
            let before = most(0, from_us);
            // The onset pages in the code that handles an outage, and calls overlap that were sent before and in it.
            let onset = most(from_us, from_us + 2 * ONE_SECOND_US);
            let during = most(from_us + 2 * ONE_SECOND_US, recovery.serves_again_us);
            let after = most(healed_us + ONE_SECOND_US / 2, u64::MAX);
            // Tasks of calls come and go with the load; a leaked task raises the minimum.
            let least = |from: u64, until: u64| least_tasks(&seen, from, until);
            let (least_before, least_after) =
                (least(from_us - ONE_SECOND_US, from_us), least(healed_us + ONE_SECOND_US / 2, u64::MAX));
            print_line(&format!(
                "chaos memory (bytes, tasks) before={before:?} onset={onset:?} during={during:?} after={after:?}, \
                 the fewest tasks before={least_before} after={least_after}"
            ));
            assert!(during.0 <= onset.0 + MAX_GROWTH, "memory grew with the outage");
            assert!(during.1 <= before.1.max(onset.1) + MAX_NEW_TASKS, "tasks grew with the outage");
            assert!(least_after <= least_before, "tasks leaked");
        }
    });
}

/// The maximum of memory and of tasks in the period.
fn most(seen: &Activity, from_us: u64, until_us: u64) -> (u64, u64) {
    let during = || seen.usage.iter().filter(|(at, ..)| (from_us..until_us).contains(at));
    let (bytes, tasks) = (during().map(|(_, bytes, _)| *bytes).max(), during().map(|(.., tasks)| *tasks).max());
    (bytes.unwrap(), tasks.unwrap())
}

/// The minimum of tasks in the period.
fn least_tasks(seen: &Activity, from_us: u64, until_us: u64) -> u64 {
    let during = seen.usage.iter().filter(|(at, ..)| (from_us..until_us).contains(at));
    during.map(|(.., tasks)| *tasks).min().unwrap()
}
