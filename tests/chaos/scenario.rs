//! One fault under load, once with each failure policy, and what it cost.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    crew::{Crew, Load},
    record::now_us,
    stage::{HOLD, Stage},
    support::judge::Findings,
    tally::{Recovery, Tally},
    worker::POLICIES,
};

/// What a fault does: it begins, lasts and ends in here.
pub(crate) type Break = fn(&mut Stage);

#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Further arguments of the server.
    pub(crate) server: &'static [&'static str],
    /// Whether the workers come through the proxy.
    pub(crate) proxied: bool,
    /// How often Redis loses its data in it.
    pub(crate) losses: u32,
    pub(crate) hold: Duration,
    pub(crate) fault: Break,
}

/// One at a time, for they measure.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn alone<T>(run: impl FnOnce() -> T) -> T {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    run()
}

impl Scenario {
    pub(crate) const fn network(name: &'static str, fault: Break) -> Self {
        Self { name, server: &[], proxied: true, losses: 0, hold: HOLD, fault }
    }

    pub(crate) const fn server(name: &'static str, server: &'static [&'static str], fault: Break) -> Self {
        Self { name, server, proxied: false, losses: 0, hold: HOLD, fault }
    }

    pub(crate) const fn losing(self, losses: u32) -> Self {
        Self { losses, ..self }
    }

    pub(crate) const fn lasting(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    pub(crate) fn run(&self) {
        alone(|| POLICIES.iter().for_each(|(policy, _)| self.run_with(policy)));
    }

    fn run_with(&self, policy: &str) {
        let mut stage = Stage::set(self.server, self.proxied, self.hold);
        let crew = Crew::start(&stage.url(), &[policy], Load::STEADY);
        // Some limits get spent before it happens, and some healthy waits are counted.
        thread::sleep(Duration::from_millis(300));
        let (from_us, recovery) = outage(&mut stage, &crew, self.fault);
        // Whether it stays healed. Instances that fail local are cautious until all of them have noticed.
        let healed_us = recovery.answers_us + ONE_SECOND_US * if policy == "local" { 2 } else { 1 };
        thread::sleep(Duration::from_micros((healed_us + 300_000).saturating_sub(now_us())));
        let mut tally = crew.stop();
        let failures_later = tally.failures_between(healed_us, u64::MAX);
        tally.settle(u64::MAX, &[(from_us, recovery.answers_us)]);
        report(self.name, policy, &tally, recovery.us);
        self.judge(policy, &tally, recovery.excess_us, failures_later);
    }

    fn judge(&self, policy: &str, tally: &Tally, recovery_us: u64, failures_later: usize) {
        let (name, (found, most)) = (self.name, tally.found());
        assert!(tally.keeps_the_deadline(), "{name}, {policy}: a wait above the deadline, see above");
        assert!(recovery_us <= ONE_SECOND_US, "{name}, {policy}: the first decision came {recovery_us} us late");
        assert_eq!(found.false_denials, 0, "{name}, {policy}: {found:?}");
        assert!(most <= f64::from(self.losses + 1), "{name}, {policy}: {most} of a limit in a window");
        assert!(found.denials * 20 > found.answers, "{name}, {policy}: the limits were not contended: {found:?}");
        // A busy machine may let a check miss its deadline now and then.
        assert!(failures_later < 20, "{name}, {policy}: {failures_later} failures after it had healed");
        match policy {
            "closed" => {}
            _ => assert_eq!(tally.errors_to_client, 0, "{name}, {policy}: errors although the policy lets pass"),
        }
    }
}

pub(crate) const ONE_SECOND_US: u64 = 1_000_000;

/// Breaks it, waits until it heals, and tells when it began.
pub(crate) fn outage(stage: &mut Stage, crew: &Crew, fault: Break) -> (u64, Recovery) {
    let from_us = now_us();
    fault(stage);
    let answers_us = stage.answers_us();
    (from_us, crew.until("it never healed", |tally| tally.recovery(answers_us)))
}

/// The line that every scenario ends with, and what it was about.
pub(crate) fn report(name: &str, policy: &str, tally: &Tally, recovery_us: u64) {
    let (found, most) = tally.found();
    let Tally { worst_wait_us, worst_excess_us, errors_to_client, requests, .. } = tally;
    let [worst, excess, p999] = [*worst_wait_us, *worst_excess_us, tally.p999_wait_us()].map(milliseconds);
    let recovery = milliseconds(u32::try_from(recovery_us).unwrap());
    let Findings { over, false_denials, denials, .. } = found;
    say(&format!(
        "chaos {name} policy={policy} worst_wait_ms={worst} p999_wait_ms={p999} recovery_ms={recovery} over={over} \
         false_denials={false_denials} errors_to_client={errors_to_client}\n\
         ({requests} requests, {denials} denied; at most {most:.2} of a limit in a window; \
         worst wait beyond the machine's own delay {excess} ms; p99 without a verdict {} us)",
        tally.p99_without_verdict_us()
    ));
}

fn milliseconds(us: u32) -> String {
    format!("{:.1}", f64::from(us) / 1000.0)
}

/// To the terminal, for the report is also of use when nothing fails: the test harness would keep `println` back.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}
