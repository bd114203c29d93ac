//! One fault under load, once with each failure policy, and what it cost.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use crate::{
    DEADLINE,
    environment::{HOLD, Stage},
    load::{Crew, Load},
    record::now_us,
    report::{Keys, Recovery, Tally},
    support::judge::Findings,
    worker::policies_for,
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
        let trial = Trial { name: self.name, losses: self.losses, heals_within_us: ONE_SECOND_US, load: Load::STEADY };
        trial.run(|| Stage::set(self.server, self.proxied, self.hold), self.fault);
    }
}

/// Where the workers go, and what breaks.
pub(crate) trait Place {
    /// As [`worker::connect`](crate::worker::connect) reads it.
    fn address(&self) -> String;

    /// Waits for the end of the fault, and tells when Redis began to serve all keys again.
    fn answers_us(&self) -> u64;

    /// The keys that the fault cuts off. All others go on.
    fn cut_off(&self) -> Keys {
        Keys::ALL
    }

    /// What is still to happen when all is well again.
    fn afterwards(&mut self) {}

    /// When a master was killed whose replica goes on instead.
    fn killed_us(&self) -> Option<u64> {
        None
    }
}

/// What is shown with each failure policy of [`policies_for`].
pub(crate) struct Trial {
    pub(crate) name: &'static str,
    /// How often all data are lost.
    pub(crate) losses: u32,
    pub(crate) heals_within_us: u64,
    pub(crate) load: Load,
}

impl Trial {
    pub(crate) fn run<P: Place>(&self, set: impl Fn() -> P, fault: fn(&mut P)) {
        alone(|| policies_for(self.name).for_each(|policy| self.run_with(policy, set(), fault)));
    }

    fn run_with<P: Place>(&self, policy: &str, mut place: P, fault: fn(&mut P)) {
        let crew = Crew::start(&place.address(), &[policy], self.load);
        // Some limits get spent before it happens, and some healthy waits are counted.
        thread::sleep(Duration::from_millis(300));
        let (from_us, recovery) = outage(&mut place, &crew, fault);
        place.afterwards();
        // Whether it stays healed. Instances that fail local are cautious for a second, until all of them have noticed.
        let cautious_us = if policy == "local" { ONE_SECOND_US } else { 0 };
        let healed_us = recovery.answers_us + self.heals_within_us + cautious_us;
        thread::sleep(Duration::from_micros((healed_us + 300_000).saturating_sub(now_us())));
        let mut tally = crew.stop();
        let (_, failures_later) = tally.between(healed_us, u64::MAX, Keys::ALL);
        let others = tally.between(from_us, recovery.answers_us, !place.cut_off());
        if let Some(killed_us) = place.killed_us() {
            tally.forgets(killed_us - LAG_US, killed_us);
        }
        tally.settle(u64::MAX, &[(from_us, recovery.answers_us)]);
        report(self.name, policy, &tally, recovery.us);
        if place.cut_off() != Keys::ALL {
            let (served, failed) = others;
            say(&format!(
                "(keys that were not cut off: a verdict in {served} milliseconds of workers, none in {failed})"
            ));
        }
        // A machine that is too busy loses connections, and caution refuses on its own.
        let in_time = u128::from(tally.p999_wait_us()) < DEADLINE.as_micros();
        if place.cut_off() == Keys::NONE && policy != "local" && in_time {
            let refused = tally.refused_early;
            assert!(
                refused < 20,
                "{}, {policy}: {refused} requests without a verdict, and not for lack of time",
                self.name
            );
        }
        let losses = self.losses + u32::from(place.killed_us().is_some());
        self.judge(policy, &tally, losses, recovery.excess_us, failures_later);
    }

    fn judge(&self, policy: &str, tally: &Tally, losses: u32, recovery_us: u64, failures_later: usize) {
        let (name, (found, most)) = (self.name, tally.found());
        assert!(tally.keeps_the_deadline(), "{name}, {policy}: a wait above the deadline, see above");
        let late = recovery_us > self.heals_within_us;
        assert!(!late, "{name}, {policy}: the first decision came {recovery_us} us late");
        assert_eq!(found.false_denials, 0, "{name}, {policy}: {found:?}");
        assert!(self.losses > 0 || found.over == 0, "{name}, {policy}: {found:?}");
        assert!(most <= f64::from(losses + 1), "{name}, {policy}: {most} of a limit in a window");
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
/// What a replica may lack of its master: it is sent everything as soon as the client is answered.
const LAG_US: u64 = 100_000;

/// Breaks it, waits until it heals, and tells when it began.
pub(crate) fn outage<P: Place>(place: &mut P, crew: &Crew, fault: fn(&mut P)) -> (u64, Recovery) {
    let from_us = now_us();
    fault(place);
    let answers_us = place.answers_us();
    // What was not cut off has nothing to recover from.
    let keys = if place.cut_off() == Keys::NONE { Keys::ALL } else { place.cut_off() };
    (from_us, crew.until("it never healed", |tally| tally.recovery(answers_us, keys)))
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
