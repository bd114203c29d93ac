//! One fault after the other, under load, and every single answer judged.

use std::{thread, time::Duration};

use crate::{
    environment::Stage,
    faults::LOSSLESS,
    load::{Crew, Load},
    scenario::{ONE_SECOND_US, Place, alone, outage, report, say},
    worker::POLICIES,
};

/// All that the faults need of a server at once.
const SERVER: &[&str] =
    &["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes", "--busy-reply-threshold", "5"];

#[test]
fn one_fault_after_the_other_in_short() {
    soak(100_000, Duration::from_millis(400), Duration::from_millis(200));
}

#[test]
#[ignore = "takes many minutes: tests/run --long"]
fn long_ten_million_requests_and_a_fault_every_few_seconds() {
    soak(10_000_000, Duration::from_millis(700), Duration::from_secs(2));
}

/// Goes on until so many requests have been made and every fault has been there.
fn soak(requests: u64, hold: Duration, calm: Duration) {
    alone(|| {
        let policies: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        let mut stage = Stage::set(SERVER, true, hold);
        let crew = Crew::start(&stage.address(), &policies, Load::BRISK);
        let mut outages = Vec::new();
        let (mut slowest_us, mut late) = (0, 0);
        let mut millions = 0;
        for scenario in LOSSLESS.iter().cycle() {
            // Between the faults all is well.
            thread::sleep(calm);
            let (from_us, recovery) = outage(&mut stage, &crew, scenario.fault);
            if recovery.excess_us > ONE_SECOND_US {
                say(&format!("({}: the first decision came late: {recovery:?})", scenario.name));
                late += 1;
            }
            slowest_us = slowest_us.max(recovery.us);
            outages.push((from_us, recovery.answers_us));
            // Nothing that has not been told by now is older than that.
            let told_us = crew.caught_up() - 2 * ONE_SECOND_US;
            let mut tally = crew.tally();
            tally.settle(told_us, &outages);
            if tally.requests / 1_000_000 > millions {
                millions = tally.requests / 1_000_000;
                say(&format!("({millions} million requests, {} faults)", outages.len()));
            }
            if outages.len() >= LOSSLESS.len() && tally.requests >= requests {
                break;
            }
        }
        let mut tally = crew.stop();
        tally.settle(u64::MAX, &outages);
        report("soak", &policies.join("+"), &tally, slowest_us);
        let found = tally.found().0;
        assert_eq!((found.over, found.false_denials, found.wrong_waits), (0, 0, 0), "{found:?}");
        assert!(tally.keeps_the_deadline(), "a wait above the deadline, see above");
        // At full load a machine that has other things to do keeps also the server from answering a probe in time. That
        // each cause heals in time is shown by its own test.
        assert!(late * 20 <= outages.len(), "{late} of {} recoveries were late, see above", outages.len());
    });
}
