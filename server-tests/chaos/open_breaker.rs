//! What an open breaker adds to a request.

use std::{thread, time::Duration};

use crate::{
    environment::Stage,
    load::{Crew, Load},
    scenario::{Place, alone, outage, say},
    support::proxy::Fault,
    worker::POLICIES,
};

/// Beyond what a request takes anyway.
const ADDED_US: u32 = 50;

/// A timer or any I/O on that path shows in the median. The tail is judged without debug assertions only, when a request
/// takes so little time that hardly any is interrupted: `tests/run --long`.
#[test]
fn an_open_breaker_adds_next_to_nothing() {
    alone(|| {
        let policies: Vec<&str> = POLICIES.iter().map(|(name, _)| *name).collect();
        let mut stage = Stage::set(&[], true, Duration::from_secs(3));
        let crew = Crew::start(&stage.address(), &policies, Load::STEADY);
        outage(&mut stage, &crew, |stage| stage.network(Fault::BlackHole));
        thread::sleep(Duration::from_millis(100));
        let tally = crew.stop();
        let (requests, median, plain_median) = tally.while_open(2);
        let (_, p99, plain_p99) = tally.while_open(100);
        say(&format!(
            "chaos breaker_open requests={requests} p50_us={median} plain_p50_us={plain_median} p99_us={p99} \
             plain_p99_us={plain_p99}"
        ));
        assert!(requests > 1_000, "{requests}");
        assert!(median <= plain_median + ADDED_US, "{median} us, and {plain_median} us without a limiter");
        if !cfg!(debug_assertions) {
            assert!(p99 <= plain_p99 + ADDED_US, "{p99} us, and {plain_p99} us without a limiter");
        }
    });
}
