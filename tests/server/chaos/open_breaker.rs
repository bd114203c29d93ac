//! The latency that the limiter adds to a request while the breaker is open.

use std::{thread, time::Duration};

use crate::load::{Load, Workers};
use crate::scenario::{outage, print_line, undisturbed};
use crate::{environment::Environment, support::proxy::Fault, target::Target, worker::POLICIES};

/// Allowed latency above that of a service without the limiter, in microseconds. A timer of tokio takes at least a
/// millisecond, and so does a call to a server that does not answer. A build without optimizations stays below that,
/// also beside other tests. The release build of `tests/run --long` stays far below.
const MAX_ADDED_US: u32 = if cfg!(debug_assertions) { 1_000 } else { 50 };

/// The median exposes a timer or I/O on this path. The tail is asserted only in a release build, where requests are so
/// short that few are interrupted.
#[test]
fn an_open_breaker_adds_almost_no_latency() {
    undisturbed(|| {
        let policies: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        let mut environment = Environment::start(&[], true, Duration::from_secs(3));
        let workers = Workers::start(&environment.address(), &policies, Load::STEADY);
        outage(&mut environment, &workers, |environment| environment.inject(Fault::BlackHole));
        thread::sleep(Duration::from_millis(100));
        let results = workers.stop();
        let (requests, median, plain_median) = results.open_breaker_waits(2);
        let (_, p99, plain_p99) = results.open_breaker_waits(100);
        print_line(&format!(
            "chaos breaker_open requests={requests} p50_us={median} plain_p50_us={plain_median} p99_us={p99} \
             plain_p99_us={plain_p99}"
        ));
        assert!(requests > 1_000, "{requests}");
        assert!(median <= plain_median + MAX_ADDED_US, "{median} us, and {plain_median} us without a limiter");
        if !cfg!(debug_assertions) {
            assert!(p99 <= plain_p99 + MAX_ADDED_US, "{p99} us, and {plain_p99} us without a limiter");
        }
    });
}
