//! All lossless faults in sequence, under load, with a check of every verdict.

use std::{thread, time::Duration};

use crate::load::{Load, Workers};
use crate::scenario::{ONE_SECOND_US, outage, print_line, print_report, undisturbed};
use crate::{environment::Environment, faults::LOSSLESS, target::Target, worker::POLICIES};

/// The union of the server arguments of all faults.
pub(crate) const SERVER: &[&str] = &[
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    // A killed server loads its file. After minutes of load, the 64 MB of the default take a busy machine ten seconds.
    "--auto-aof-rewrite-min-size",
    "4mb",
    "--enable-debug-command",
    "yes",
    "--busy-reply-threshold",
    "5",
];

#[test]
#[ignore = "repeats the faults of the other tests: tests/run --all"]
fn short_soak_with_all_faults_in_sequence() {
    soak(100_000, Duration::from_millis(400), Duration::from_millis(200));
}

#[test]
#[ignore = "takes many minutes: tests/run --long"]
fn long_ten_million_requests_and_a_fault_every_few_seconds() {
    soak(10_000_000, Duration::from_millis(700), Duration::from_secs(2));
}

/// Runs until `requests` requests have been sent and every fault has occurred at least once.
fn soak(requests: u64, hold: Duration, calm: Duration) {
    undisturbed(|| {
        let policies: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        let mut environment = Environment::start(SERVER, true, hold);
        let workers = Workers::start(&environment.address(), &policies, Load::BRISK);
        let mut outages = Vec::new();
        let (mut slowest_us, mut late) = (0, 0);
        let mut millions = 0;
        for scenario in LOSSLESS.iter().cycle() {
            // A healthy period between two faults.
            thread::sleep(calm);
            let (from_us, recovery) = outage(&mut environment, &workers, scenario.fault);
            if recovery.excess_us > ONE_SECOND_US {
                print_line(&format!("({}: the first decision came late: {recovery:?})", scenario.name));
                late += 1;
            }
            slowest_us = slowest_us.max(recovery.us);
            outages.push((from_us, recovery.serves_again_us));
            // Records that are still missing are younger than two seconds.
            let complete_until_us = workers.wait_until_reported() - 2 * ONE_SECOND_US;
            let mut results = workers.results();
            results.settle(complete_until_us, &outages);
            if results.requests / 1_000_000 > millions {
                millions = results.requests / 1_000_000;
                print_line(&format!("({millions} million requests, {} faults)", outages.len()));
            }
            if outages.len() >= LOSSLESS.len() && results.requests >= requests {
                break;
            }
        }
        let mut results = workers.stop();
        results.settle(u64::MAX, &outages);
        print_report("soak", &policies.join("+"), &results, slowest_us);
        let found = results.found().0;
        assert_eq!((found.over, found.false_denials, found.wrong_waits), (0, 0, 0), "{found:?}");
        assert!(results.keeps_the_deadline(), "a wait above the deadline, see above");
        // At full load on a busy machine, a probe may miss its deadline. The test of each fault asserts its recovery
        // time.
        assert!(late * 20 <= outages.len(), "{late} of {} recoveries were late, see above", outages.len());
    });
}
