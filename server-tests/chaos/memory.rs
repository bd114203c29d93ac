//! An outage at full load takes no memory and leaves nothing running.

use std::{thread, time::Duration};

use crate::{
    environment::Stage,
    load::{Crew, Load},
    report::Seen,
    scenario::{ONE_SECOND_US, Place, alone, outage, say},
};

/// What reliability.md allows an outage to take.
const GROWTH: u64 = 1 << 20;
/// Dials that are under way, drivers of connections that are just being replaced.
const TASKS: u64 = 8;

#[test]
fn memory_and_tasks_stay_flat_while_the_server_is_silent() {
    flat(Duration::from_secs(8));
}

#[test]
#[ignore = "takes a minute: tests/run --long"]
fn long_memory_and_tasks_stay_flat_while_the_server_is_silent_for_a_minute() {
    flat(Duration::from_secs(60));
}

fn flat(hold: Duration) {
    alone(|| {
        let mut stage = Stage::set(&[], false, hold);
        let crew = Crew::start(&stage.address(), &["closed"], Load::FULL);
        // What is needed for healthy load has been allocated by then.
        thread::sleep(Duration::from_secs(2));
        let (from_us, recovery) = outage(&mut stage, &crew, |stage| {
            stage.server.signal("STOP");
            stage.hold();
            stage.server.signal("CONT");
        });
        // What the outage has left behind would still be there.
        thread::sleep(Duration::from_secs(1));
        let healed_us = recovery.answers_us + recovery.us;
        for seen in crew.stop().seen {
            let most = |from: u64, until: u64| most(&seen, from, until);
            let before = most(0, from_us);
            // The code that deals with an outage is read in once it begins.
            let onset = most(from_us, from_us + 2 * ONE_SECOND_US);
            let during = most(from_us + 2 * ONE_SECOND_US, recovery.answers_us);
            let after = most(healed_us + ONE_SECOND_US / 2, u64::MAX);
            // Calls and what measures come and go with the load; what is left behind is there all the time.
            let least = |from: u64, until: u64| least_tasks(&seen, from, until);
            let (least_before, least_after) =
                (least(from_us - ONE_SECOND_US, from_us), least(healed_us + ONE_SECOND_US / 2, u64::MAX));
            say(&format!(
                "chaos flat (bytes, tasks) before={before:?} onset={onset:?} during={during:?} after={after:?}, \
                 the fewest tasks before={least_before} after={least_after}"
            ));
            assert!(during.0 <= onset.0 + GROWTH, "memory grew with the outage");
            assert!(during.1 <= before.1 + TASKS, "tasks grew with the outage");
            assert!(least_after <= least_before, "tasks were left behind");
        }
    });
}

/// The most memory and the most tasks in that time.
fn most(seen: &Seen, from_us: u64, until_us: u64) -> (u64, u64) {
    let during = || seen.usage.iter().filter(|(at, ..)| (from_us..until_us).contains(at));
    let (bytes, tasks) = (during().map(|(_, bytes, _)| *bytes).max(), during().map(|(.., tasks)| *tasks).max());
    (bytes.unwrap(), tasks.unwrap())
}

/// The fewest tasks in that time.
fn least_tasks(seen: &Seen, from_us: u64, until_us: u64) -> u64 {
    let during = seen.usage.iter().filter(|(at, ..)| (from_us..until_us).contains(at));
    during.map(|(.., tasks)| *tasks).min().unwrap()
}
