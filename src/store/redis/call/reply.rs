//! The reply of the script, also on checks with keys that are banned by hand. `lua/FORMAT.md` describes its format.

use redis::Value;

use super::hold_record::holds_of;
use super::outgoing::{Request, Step};
use super::packed::{Packed, out_of_range, unknown_format};
use super::protocol::{counts_of, counts_of_charge, denials_of, growth_of};
use crate::error::{Error, ErrorKind};
use crate::store::ban::{self, PolicyCost};
use crate::verdict::{Outcome, Outcomes, Source, Verdict};
use crate::{check::Charge, observe::Fingerprint};

/// The results of one call.
pub(super) struct Reply {
    /// A verdict or an error for each check.
    pub(super) verdicts: Vec<Result<Verdict, Error>>,
    /// Whether an error demands that the connection is replaced.
    pub(super) breaks_connection: bool,
    /// The time of the call, if it had calendar windows.
    pub(super) calendar_time_us: Option<u64>,
    /// The calendar windows that did not contain the time of their charge: the number of the request, that of the
    /// charge in it, and the time. Nothing was charged.
    pub(super) stale: Vec<(usize, usize, u64)>,
}

/// How the text of a check with a stale window begins.
const STALE_WINDOW: &[u8] = b"STALEWINDOW";

/// Reads the reply. `convert` converts the error of a check and returns whether the connection has to be replaced.
pub(super) fn read<'a>(
    reply: &Value,
    requests: impl Iterator<Item = &'a Request> + Clone,
    convert: impl Fn(&str) -> (Error, bool),
) -> Result<Reply, Error> {
    let Value::BulkString(packed) = reply else { return Err(unknown_format()) };
    let mut packed = Packed::new(packed, requests.clone().map(counts_of).sum())?;
    let verdicts = Vec::with_capacity(requests.size_hint().0);
    let mut reply = Reply { verdicts, breaks_connection: false, calendar_time_us: None, stale: Vec::new() };
    // The number of the first charge of the request in the call.
    let mut first = 1;
    for request in requests {
        let charges = counts_of(request);
        let verdict = match packed.failure(charges)? {
            Some(message) if message.starts_with(STALE_WINDOW) => {
                let (number, time_us) = Packed::stale_window(&message[STALE_WINDOW.len()..])?;
                packed.has_calendar = true;
                reply.stale.push((reply.verdicts.len(), charge_at(request, number, first), time_us));
                Err(Error::new(ErrorKind::Unavailable, "the clock of the store moves away from its calendar window"))
            }
            Some(message) if message.starts_with(BANNED) => judged_beside_bans(request, &message[BANNED.len()..]),
            Some(message) => {
                let (error, breaks_connection) = convert(&String::from_utf8_lossy(message));
                reply.breaks_connection |= breaks_connection;
                Err(error)
            }
            None => packed.verdict(request)?,
        };
        reply.verdicts.push(verdict.map_err(|error| name_keys(error, request)));
        first += charges as u64;
    }
    reply.calendar_time_us = packed.has_calendar.then_some(packed.time_us);
    packed.end().map(|()| reply)
}

/// The number of the charge of a request whose count has this number in a call. `first` is that of its first count.
fn charge_at(request: &Request, number: u64, first: u64) -> usize {
    let mut last = first;
    let ends = request.charges().map(|(charge, _)| {
        last += counts_of_charge(charge, request.step) as u64;
        last
    });
    ends.take_while(|end| *end <= number).count()
}

/// The verdict on a check with banned keys, from the text in the place of its error.
fn judged_beside_bans(request: &Request, text: &[u8]) -> Result<Verdict, Error> {
    let (ends_us, mut packed) = Packed::banned(text, counts_of(request))?;
    let mut verdict = packed.verdict(request)??;
    packed.end()?;
    add(&mut verdict, request, &ends_us);
    Ok(verdict)
}

/// Names the keys of a check whose error is about the value of a key. The script does not say which of them it is.
fn name_keys(error: Error, request: &Request) -> Error {
    if error.kind() != ErrorKind::BadKey {
        return error;
    }
    let mut keys: Vec<_> =
        request.charges().map(|(charge, _)| name_key(&Fingerprint::of(&charge.key), charge.policy.name())).collect();
    keys.dedup();
    error.about(&keys.join(", or "))
}

/// Names a key under the policy that a user knows, which may have further counts: of its shards, or of its pauses. No
/// user can choose a name with a bracket or a blank.
fn name_key(key: &Fingerprint, count: &str) -> String {
    match count.split(['(', ' ']).next() {
        Some(policy) if policy != count => format!("key {key} under policy {policy:?}, in its count {count:?}"),
        _ => format!("key {key} under policy {count:?}"),
    }
}

impl Packed<'_> {
    /// The verdict on a check. Numbers out of range fail the check alone; the outer error is that of the whole reply.
    fn verdict(&mut self, request: &Request) -> Result<Result<Verdict, Error>, Error> {
        self.is_out_of_range = false;
        let mut units = None;
        let mut outcomes: Outcomes = request
            .charges()
            .map(|(charge, _)| {
                if matches!(request.step, Step::ByHand(_)) {
                    return self.changed(charge, request);
                }
                if let Step::Alone(alone) = request.step {
                    return alone.read(self, charge, request);
                }
                let own = match holds_of(charge, request.step) {
                    Some(_) => self.outcome_beside_holds(charge, request)?,
                    None => self.outcome(&charge.policy, denied_cost(charge, request.step))?,
                };
                if request.step == Step::UpTo {
                    units = Some(self.more()?);
                }
                // A hold that has changed is still open or not, whatever the denials are.
                match denials_of(charge, request.step) {
                    Some(PolicyCost { policy, cost, .. }) => {
                        let denials = self.outcome(policy, cost)?;
                        if growth_of(policy, request.step).is_some() {
                            let _ = (self.number()?, self.time()?);
                        }
                        Ok(if request.step.is_check() { ban::merge(own, denials) } else { own })
                    }
                    None => Ok(own),
                }
            })
            .collect::<Result<_, Error>>()?;
        if let Some(units) = units {
            outcomes.0.push(of_units(self.units(units)));
        }
        if request.step.receipt().is_some() {
            self.number()?;
            self.time()?;
        }
        if self.is_out_of_range {
            return Ok(Err(out_of_range()));
        }
        let allowed = request.is_allowed_by(&outcomes);
        Ok(Ok(Verdict { allowed, source: Source::Store, time_us: self.time_us, outcomes }))
    }

    /// What a change by hand has changed, as the available units: the largest number of its counts.
    fn changed(&mut self, charge: &Charge, request: &Request) -> Result<Outcome, Error> {
        let mut available = 0;
        for _ in 0..counts_of_charge(charge, request.step) {
            let ((_, _, changed), _) = (self.number()?, self.time()?);
            available = available.max(self.units(changed));
        }
        Ok(of_units(available))
    }
}

/// The cost for which a denied charge waits: where as many units as fit are charged, one.
pub(super) fn denied_cost(charge: &Charge, step: Step) -> u64 {
    if step == Step::UpTo { 1 } else { charge.cost }
}

/// What was changed, as the available units.
fn of_units(available: u64) -> Outcome {
    Outcome { fits: true, available, retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 }
}

/// The start of the text that is not an error, but has the numbers of a check with banned keys. `lua/FORMAT.md`
/// describes it.
const BANNED: &[u8] = b"BANNED";

/// Adds the bans, which end at these times in microseconds, to a verdict without them. Each count of a charge has an
/// end, 0 without a ban.
pub(super) fn add(verdict: &mut Verdict, request: &Request, mut ends_us: &[u64]) {
    for ((charge, _), outcome) in request.charges().zip(&mut verdict.outcomes) {
        let (own, others) = ends_us.split_at(counts_of_charge(charge, request.step));
        ends_us = others;
        let mut add_ban = |end_us: u64, is_denied: bool, is_own: bool| {
            let left_us = end_us.saturating_sub(verdict.time_us);
            if left_us > 0 {
                // A cost that never fits is no denial, and does not fit all the same.
                *outcome = ban::by_hand(*outcome, !is_denied && (is_own || outcome.fits), left_us);
                if is_denied && !charge.policy.is_shadow() {
                    request.outgoing.meets_ban_by_hand();
                }
            }
        };
        add_ban(own[0], charge.is_denied_by_ban(), true);
        // A ban that grows is beside the count of denials, which is behind the holds.
        if let Some(denials) = denials_of(charge, request.step).filter(|_| !request.step.is_alone()) {
            let end_us = own.get(1 + usize::from(holds_of(charge, request.step).is_some()));
            add_ban(end_us.copied().unwrap_or(0), denials.is_denied_by_ban, false);
        }
    }
    verdict.allowed = request.is_allowed_by(&verdict.outcomes);
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        check::Check,
        key::Key,
        policy::{Algorithm, HoldSettings, Policy},
        store::redis::call::{outgoing::Outgoing, progress::Progress},
    };

    /// A request for each list of policies; all of the costs are 1.
    fn requests(checks: &[&[&Policy]]) -> Vec<Request> {
        let request = |policies: &&[&Policy]| {
            let mut check = Check::new("0", policies[0], 1);
            for (number, policy) in policies.iter().enumerate().skip(1) {
                check = check.and(number.to_string(), policy, 1);
            }
            let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
            Request::whole(Arc::new(Outgoing::new(check, keys, Progress::new(false), None)))
        };
        checks.iter().map(request).collect()
    }

    fn read_doubles(doubles: &[f64], rest: &[u8], requests: &[Request]) -> Result<Reply, Error> {
        let mut packed: Vec<_> = doubles.iter().flat_map(|double| double.to_le_bytes()).collect();
        packed.extend(rest);
        let convert = |message: &str| (Error::new(ErrorKind::Unavailable, message.to_owned()), false);
        read(&Value::BulkString(packed), requests.iter(), convert)
    }

    #[test]
    fn lengths_of_errors_whose_sum_overflows_are_an_error() {
        let policy = Policy::per_second("p", 5).unwrap();
        let single: &[&Policy] = &[&policy];
        let requests = requests(&[single; 64]);
        let mut doubles = vec![-1.0; 129];
        doubles[0] = 1e15;
        doubles[65..].fill(9e17);
        assert!(read_doubles(&doubles, b"", &requests).is_err());
        // Each overflowing length alone leads to an error too.
        for length in [9e17, 1e300, f64::INFINITY, f64::NAN, -1.0, 1.0] {
            doubles[65..].fill(0.0);
            doubles[100] = length;
            assert!(read_doubles(&doubles, b"", &requests).is_err(), "{length}");
        }
    }

    #[test]
    fn a_failed_check_leaves_the_numbers_of_the_others() {
        let log = Policy::per_second("l", 5).unwrap();
        let counter = log.clone().with_algorithm(Algorithm::SlidingWindowCounter);
        let requests = requests(&[&[&counter], &[&log, &counter], &[&log], &[&log]]);
        // Counters report the previous window in `more`, and a log its waits. The third check has no unit available, so
        // its number is the reset.
        let numbers = [3.0 * 4.0 + 3.0, -1.0, -1.0, 9e5 * 4.0, 2.0 * 4.0 + 2.0];
        let times = [1e5, 3.0, 0.0, 7e5, 1e5];
        let more = [1.0, 2e5, 8e5];
        let doubles = [&[1e15][..], &numbers, &times, &more].concat();
        let reply = read_doubles(&doubles, b"BAD", &requests).unwrap();
        let [counted, failed, denied, searched] = &reply.verdicts[..] else {
            panic!("{} verdicts", reply.verdicts.len())
        };
        assert!(counted.as_ref().unwrap().allowed);
        assert!(failed.as_ref().unwrap_err().to_string().contains("BAD"));
        let outcome = |verdict: &Result<Verdict, Error>| {
            let Outcome { fits, available, retry_after_us, next_us, reset_us, .. } =
                verdict.as_ref().unwrap().outcomes[0];
            (fits, available, retry_after_us, next_us, reset_us)
        };
        assert_eq!(outcome(denied), (false, 0, Some(700_000), 700_000, 900_000));
        assert_eq!(outcome(searched), (false, 2, Some(200_000), 100_000, 800_000));
        // A reply that is shorter or longer by anything is an error of the whole call.
        for length in 0..doubles.len() {
            assert!(read_doubles(&doubles[..length], b"BAD", &requests).is_err(), "{length}");
        }
        for rest in [&b""[..], b"BA", b"BADS", b"12345678BAD"] {
            assert!(read_doubles(&doubles, rest, &requests).is_err());
        }
    }

    #[test]
    fn numbers_out_of_range_fail_only_their_own_check() {
        let log = Policy::per_second("log", 5).unwrap();
        let counter = log.clone().with_algorithm(Algorithm::SlidingWindowCounter);
        let requests = requests(&[&[&log], &[&counter], &[&log, &log], &[&log]]);
        // All checks fit. The counter and the last log have one more number.
        let good = [&[1e15][..], &[9.0, 7.0, 5.0, 5.0, 11.0], &[1e5; 5], &[1.0, 8e5]].concat();
        let failed = |numbers: &[f64]| {
            let reply = read_doubles(numbers, b"", &requests).unwrap();
            let errors = reply.verdicts.iter().map(|verdict| verdict.as_ref().err().map(ToString::to_string));
            errors.collect::<Vec<_>>()
        };
        assert_eq!(failed(&good), [None, None, None, None]);
        let fingerprint = |key: &str| Fingerprint::of(&Key::from(key)).to_string();
        let alone = format!("(key {} under policy \"log\")", fingerprint("0"));
        // A time, one of the other numbers, and the available units.
        for (index, number, check) in [
            (6, f64::NAN, 0),
            (7, -1.0, 1),
            (9, f64::INFINITY, 2),
            (11, f64::NAN, 1),
            (12, 1e300, 3),
            (1, 4.0 * 1_099_511_627_777.0 + 1.0, 0),
        ] {
            let mut numbers = good.clone();
            numbers[index] = number;
            let failed = failed(&numbers);
            assert!((0..4).all(|other| failed[other].is_some() == (other == check)), "{index}: {failed:?}");
            assert!(check != 0 || failed[0].as_ref().unwrap().contains(&alone), "{failed:?}");
        }
        // The number says whether more numbers follow. If it is wrong, later checks with more numbers fail too.
        for number in [f64::NAN, 1e18, f64::INFINITY, 4.5] {
            let mut numbers = good.clone();
            numbers[1] = number;
            let failed = failed(&numbers);
            assert_eq!(failed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true], "{number}");
        }
    }

    #[test]
    fn no_numbers_lead_to_a_panic() {
        let short = Policy::new("p", 1, Duration::from_micros(1)).unwrap();
        let long = Policy::new("p", Policy::MAX_LIMIT, Policy::MAX_WINDOW).unwrap();
        let algorithms = [
            Algorithm::SlidingWindowLog,
            Algorithm::SlidingWindowCounter,
            Algorithm::FixedWindow,
            Algorithm::TokenBucket,
        ];
        let policies: Vec<_> = [short, long, Policy::per_minute("p", 7).unwrap()]
            .iter()
            .flat_map(|policy| algorithms.map(|algorithm| policy.clone().with_algorithm(algorithm)))
            .flat_map(|policy| {
                let release = HoldSettings::new().with_unsettled_released(true);
                let with_holds = |holds| policy.clone().with_holds(holds);
                [with_holds(HoldSettings::new()), with_holds(release), policy]
            })
            .chain([Policy::per_minute("q", 5).unwrap().ban_after(3, Duration::from_secs(60))])
            .collect();
        let doubles = [
            0.0,
            -0.0,
            1.0,
            2.0,
            3.0,
            4.0,
            5.0,
            7.0,
            1e6,
            1e15,
            9.99e17,
            1e18,
            1e19,
            1e300,
            0.5,
            -0.5,
            -1.0,
            -1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            1_099_511_627_776.0,
            4_398_046_511_107.0,
            5e-324,
            31_622_400e6,
        ];
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % bound
        };
        let mut read = [0; 2];
        for _ in 0..200_000 {
            let checks: Vec<Vec<&Policy>> =
                (0..=below(2)).map(|_| (0..=below(2)).map(|_| &policies[below(policies.len())]).collect()).collect();
            let requests = requests(&checks.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let charges: usize = requests.iter().map(counts_of).sum();
            let length = 1 + 2 * charges + below(2 * charges + 1);
            // Half of the replies have only numbers that the script may have sent.
            let choices = if below(2) == 0 { 11 } else { doubles.len() };
            let numbers: Vec<_> = (0..length).map(|_| doubles[below(choices)]).collect();
            let reply = read_doubles(&numbers, &b"text"[..below(5)], &requests);
            read[usize::from(reply.is_ok())] += 1;
            for verdict in reply.iter().flat_map(|reply| reply.verdicts.iter().flatten()) {
                assert_eq!(verdict.allowed, verdict.outcomes.iter().all(|outcome| outcome.fits));
            }
        }
        assert!(read[1] > 1_000, "{read:?}");
    }
}
