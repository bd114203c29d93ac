//! The keys and arguments of a call. `lua/FORMAT.md` describes their format; `reply.rs` reads the reply.

use redis::Cmd;

use super::outgoing::{Request, Step};
use super::{calendar_times::CalendarTimes, hold_record::holds_of, redis_key::RedisKeys, runs::Runs};
use crate::policy::{BanGrowth, Policy};
use crate::store::ban::{self, PolicyCost};
use crate::{check::Charge, store::CountChange};

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write<'a>(
    command: &mut Cmd,
    keys: &RedisKeys,
    times: &CalendarTimes<'_>,
    requests: impl Iterator<Item = &'a Request> + Clone,
) {
    command.arg(requests.clone().map(counts_of).sum::<usize>());
    let (mut runs, mut encoded) = (Runs::new(), Vec::new());
    for request in requests {
        runs.begin(counts_of(request));
        for (number, (charge, key)) in request.charges().enumerate() {
            if charge.policy.calendar_windows().is_some() {
                runs.calendar_time_us = times.of(request, number);
            }
            if let Step::Alone(alone) = request.step {
                alone.write(charge, key, keys, command, &mut runs);
                continue;
            }
            let holds = holds_of(charge, request.step);
            let own = ban::own_cost(charge);
            encoded.clear();
            keys.encode(&mut encoded, key, own.policy);
            command.arg(&encoded);
            runs.add(own, request.step, holds.is_some(), charge.has_alternative());
            if let Some(holds) = holds {
                encoded.clear();
                keys.encode_holds(&mut encoded, key, &charge.policy);
                command.arg(&encoded);
                runs.add_holds(charge, holds, request.step);
            }
            if let Some(denials) = denials_of(charge, request.step) {
                encoded.clear();
                keys.encode(&mut encoded, key, denials.policy);
                command.arg(&encoded);
                runs.add(denials, request.step, false, false);
                if let Some(growth) = growth_of(denials.policy, request.step) {
                    encoded.clear();
                    keys.encode_last_ban(&mut encoded, key, denials.policy);
                    command.arg(&encoded);
                    runs.add_growth(growth, request.step);
                }
            }
        }
        if let (Some(receipt), Some((_, key))) = (request.step.receipt(), request.charges().next()) {
            encoded.clear();
            keys.encode_receipt(&mut encoded, key, receipt);
            command.arg(&encoded);
            runs.add_receipt(request.step);
        }
        runs.end();
    }
    command.arg(&runs.packed);
    if let Some(now_us) = times.now_us {
        command.arg(now_us);
    }
}

/// What a step with a charge costs in the count of the charge's denials, if they lead to a ban. A refund concerns no
/// such count, because the charge was admitted; of the changes by hand, only the end of a ban does, and of those of
/// holds, only a settlement that may be a denial.
pub(super) fn denials_of(charge: &Charge, step: Step) -> Option<PolicyCost<'_>> {
    match step {
        Step::ByHand(change) if change != CountChange::Unban => None,
        Step::Change(change) => ban::denied_settlement(charge, change),
        Step::Refund(_) => None,
        _ => ban::denial(charge),
    }
}

/// How bans grow, if a step may begin one. `denials` is the policy that counts denials. A ban that is ended by hand is
/// forgotten, also if the policy does not know that bans grow.
pub(super) fn growth_of(denials: &Policy, step: Step) -> Option<BanGrowth> {
    match step {
        Step::Evaluate => None,
        Step::ByHand(_) => Some(denials.ban_growth().unwrap_or(BanGrowth { longest_us: 0, least_quiet_us: 0 })),
        _ => denials.ban_growth(),
    }
}

/// The number of counts that a request concerns. The script calls each of them a charge. The open holds of a count are
/// one more, as are the count of denials and the length of the last ban. A receipt is one more of the request.
pub(super) fn counts_of(request: &Request) -> usize {
    let counts: usize = request.charges().map(|(charge, _)| counts_of_charge(charge, request.step)).sum();
    counts + usize::from(request.step.receipt().is_some())
}

/// The number of counts that a step with a charge concerns.
pub(super) fn counts_of_charge(charge: &Charge, step: Step) -> usize {
    if let Step::Alone(alone) = step {
        return alone.len(charge);
    }
    let denials =
        denials_of(charge, step).map_or(0, |denials| 1 + usize::from(growth_of(denials.policy, step).is_some()));
    1 + usize::from(holds_of(charge, step).is_some()) + denials
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        check::{Check, open_hold::OpenHold},
        hold::HoldChange,
        policy::{HoldSettings, Policy},
        store::redis::call::{
            outgoing::{Charges, Committed, Outgoing},
            progress::Progress,
            redis_key::Slots,
            script::ScriptClock,
        },
    };

    /// The runs of one check.
    fn packed(charges: &[(&Policy, u64)]) -> Vec<u8> {
        let mut runs = Runs::new();
        runs.begin(charges.len());
        for &(policy, cost) in charges {
            runs.add(PolicyCost { policy, cost, is_denied_by_ban: cost > 0 }, Step::Commit, false, false);
        }
        runs.end();
        runs.packed
    }

    /// One charge: algorithm, usage, limit 10, a minute, resolution 1, cost.
    fn log(usage: u8, cost: u8) -> Vec<u8> {
        [&[1, usage][..], &[10.0, 60e6, 1.0, f64::from(cost)].map(f64::to_le_bytes).concat()].concat()
    }

    #[test]
    fn a_check_of_one_charge_is_written_as_without_shadow_policies() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let plain = [&[1, 1, 0, 1][..], &log(0, 3)].concat();
        assert_eq!(packed(&[(&policy, 3)]), plain);
        assert_eq!(packed(&[(&policy.with_shadow(true), 3)]), plain);
    }

    /// The keys and the runs of a whole call.
    fn written(check: Check, step: Step) -> (Vec<String>, Vec<u8>) {
        let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
        let outgoing = Arc::new(Outgoing::new(check, keys, Progress::new(false), None));
        let request = Request { outgoing, charges: Charges::All, step };
        let mut command = Cmd::new();
        let times = CalendarTimes { clock: &ScriptClock::new(None), now_us: None, stale: &[] };
        write(&mut command, &RedisKeys::new("t:", Slots::OneServer), &times, std::iter::once(&request));
        let mut arguments: Vec<Vec<u8>> = command
            .args_iter()
            .map(|argument| match argument {
                redis::Arg::Simple(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            })
            .collect();
        let runs = arguments.pop().unwrap();
        let mut texts = arguments.into_iter().map(|key| String::from_utf8(key).unwrap());
        assert_eq!(texts.next().unwrap(), texts.len().to_string(), "the number of keys");
        (texts.collect(), runs)
    }

    #[test]
    fn only_charges_with_an_alternative_have_the_flag() {
        let [p, q] = ["p", "q"].map(|name| Policy::per_minute(name, 10).unwrap());
        let head = [33, 1, 0, 3];
        let check = Check::first_of("a", [&p, &q], 3).and("b", &p, 1);
        let (_, runs) = written(check.clone(), Step::Commit);
        assert_eq!(runs, [&head[..], &log(64, 3), &log(0, 3), &log(0, 1)].concat());
        let (_, evaluated) = written(check, Step::Evaluate);
        assert_eq!(evaluated, [&head[..], &log(66, 3), &log(2, 3), &log(2, 1)].concat());
    }

    #[test]
    fn the_calls_of_plain_policies_have_not_one_byte_for_holds() {
        let plain = Policy::per_minute("p", 10).unwrap();
        let head = [1, 1, 0, 1];
        let alone = written(Check::new("a", &plain, 3), Step::Commit);
        assert_eq!(alone, (vec!["t:{a}:p:l5:1m".to_owned()], [&head[..], &log(0, 3)].concat()));
        let other = Policy::per_minute("q", 10).unwrap();
        let (keys, runs) = written(Check::new("a", &plain, 3).and("a", &other, 1), Step::Commit);
        assert_eq!(keys, ["t:{a}:p:l5:1m", "t:{a}:q:l5:1m"]);
        assert_eq!(runs, [&[33, 1, 0, 2][..], &log(0, 3), &log(0, 1)].concat());
    }

    #[test]
    fn the_holds_of_a_policy_follow_its_count() {
        let ttl = Duration::from_secs(30);
        let policy = Policy::per_minute("p", 10).unwrap();
        let charged = policy.clone().with_holds(HoldSettings::new().with_ttl(ttl));
        let released = policy.with_holds(HoldSettings::new().with_ttl(ttl).with_unsettled_released(true));
        let keys = ["t:{a}:p:l5:1m", "t:{a}:p(holds):l5:1m"].map(str::to_owned).to_vec();
        let count = |cost| [&[9], &log(0, cost)[1..]].concat();
        // The fields of holds: 8, usage, what becomes of unsettled ones, TTL, id, units to charge.
        let holds = |usage, unsettled: f64, id: u64, actual: f64| {
            let (unsettled, ttl) = (unsettled.to_le_bytes(), 30e6_f64.to_le_bytes());
            [&[8, usage][..], &unsettled, &ttl, &id.to_be_bytes(), &actual.to_le_bytes()].concat()
        };
        // Log, several charges, holds.
        let head = [161, 1, 0, 2];
        let runs = |count: Vec<u8>, holds: Vec<u8>| (keys.clone(), [&head[..], &count, &holds].concat());
        assert_eq!(written(Check::new("a", &charged, 3), Step::Commit), runs(count(3), holds(0, 0.0, 0, 0.0)));

        let hold = Check::hold("a", &released, 3);
        let open = OpenHold::of(&hold.charges()[0]).unwrap();
        let id = open.id().get();
        assert_eq!(written(hold, Step::Commit), runs(count(3), holds(0, 1.0, id, 0.0)));
        let changed = |change| written(Check::of_open_hold(open.clone()), Step::Change(change));
        assert_eq!(changed(HoldChange::Settle(7)), runs(count(0), holds(1, 1.0, id, 7.0)));
        assert_eq!(changed(HoldChange::Renew), runs(count(0), holds(2, 1.0, id, 0.0)));
    }

    #[test]
    fn the_count_of_denials_follows_the_holds_where_a_denial_may_be_counted() {
        let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
        let policy = policy.ban_after(5, Duration::from_secs(60));
        let (both, all) = (["t:{a}:p:l5:1m", "t:{a}:p(holds):l5:1m"], "t:{a}:p(ban):l5:1m");
        let hold = Check::hold("a", &policy, 3);
        let open = OpenHold::of(&hold.charges()[0]).unwrap();
        let changed = |change| written(Check::of_open_hold(open.clone()), Step::Change(change));
        let is_denial = |(keys, runs): (Vec<String>, Vec<u8>)| {
            assert_eq!(keys[..2], both);
            assert_eq!(keys.get(2).map(String::as_str), (keys.len() > 2).then_some(all));
            // The usage of the holds, which are the second record.
            (keys.len() > 2, runs[4 + 34 + 1])
        };
        assert_eq!(is_denial(written(hold, Step::Commit)), (true, 0));
        assert_eq!(is_denial(changed(HoldChange::Settle(7))), (true, 9));
        assert_eq!(is_denial(changed(HoldChange::Settle(0))), (false, 1));
        assert_eq!(is_denial(changed(HoldChange::Renew)), (false, 2));
    }

    #[test]
    fn each_step_names_the_keys_that_it_concerns_and_no_others() {
        let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
        let policy = policy.ban_after(5, Duration::from_secs(60)).growing_to(Duration::from_secs(600));
        let (plain, hold) = (&Check::new("a", &policy, 3), &Check::hold("a", &policy, 3));
        let all = ["p", "p(holds)", "p(ban)", "p(ban)+"];
        let refund = Step::Refund(Committed::At(5));
        for (check, step, concerned) in [
            (plain, Step::Evaluate, &all[..3]),
            (plain, Step::Commit, &all[..]),
            (plain, Step::Reject, &all[..]),
            (plain, refund, &all[..1]),
            (hold, refund, &all[..2]),
            (hold, Step::Change(HoldChange::Settle(7)), &all[..]),
            (hold, Step::Change(HoldChange::Settle(0)), &all[..2]),
            (plain, Step::ByHand(CountChange::Ban(Duration::from_secs(60))), &all[..1]),
            (plain, Step::ByHand(CountChange::Record(7)), &all[..1]),
            (plain, Step::ByHand(CountChange::Unban), &["p", "p(ban)", "p(ban)+"][..]),
        ] {
            let (keys, _) = written(check.clone(), step);
            let names: Vec<_> = keys.iter().filter_map(|key| key.split(':').nth(2)).collect();
            assert_eq!(names, concerned, "{step:?}");
        }
    }

    /// The number of charges is one byte.
    #[test]
    fn the_largest_check_may_have_four_counts_of_each_charge() {
        let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
        let policy = policy.ban_after(5, Duration::from_secs(60)).growing_to(Duration::from_secs(600));
        for (charges, written_as) in [(63, 252), (64, 0)] {
            let and_key = |check: Check, key: u64| check.and(key, &policy, 1);
            let check = (1..charges).fold(Check::new(0_u64, &policy, 1), and_key);
            let (keys, runs) = written(check, Step::Commit);
            assert_eq!((keys.len() as u64, runs.len() as u64), (4 * charges, 4 + 4 * charges * 34));
            assert_eq!(runs[1..4], [1, 0, written_as]);
        }
    }

    #[test]
    fn a_rejection_commits_what_counts_denials_alone_and_a_refund_decides_nothing() {
        let [p, q, s] = ["p", "q", "s"].map(|name| Policy::per_minute(name, 10).unwrap());
        let check = Check::new("a", &p, 3).and("b", &q.with_denials_counted(true), 2);
        let check = check.and("c", &s.with_shadow(true), 1);
        let (_, rejected) = written(check.clone(), Step::Reject);
        assert_eq!(rejected, [&[33, 1, 0, 3][..], &log(2, 3), &log(3, 2), &log(18, 1)].concat());
        let (_, refunded) = written(check, Step::Refund(Committed::At(5)));
        let time = 5_f64.to_le_bytes();
        let charges = [&log(4, 3)[..], &time, &log(4, 2), &time, &log(4, 1), &time].concat();
        assert_eq!(refunded, [&[49, 1, 0, 3][..], &charges].concat());
    }

    #[test]
    fn only_shadow_charges_of_larger_checks_have_the_flag() {
        let (policy, shadow) = (Policy::per_minute("p", 10).unwrap(), Policy::per_minute("s", 10).unwrap());
        let head = [33, 1, 0, 2];
        assert_eq!(packed(&[(&policy, 3), (&shadow, 1)]), [&head[..], &log(0, 3), &log(0, 1)].concat());
        let shadow = shadow.with_shadow(true);
        assert_eq!(packed(&[(&policy, 3), (&shadow, 1)]), [&head[..], &log(0, 3), &log(16, 1)].concat());
        let counting = shadow.with_denials_counted(true);
        assert_eq!(packed(&[(&policy, 3), (&counting, 1)]), [&head[..], &log(0, 3), &log(17, 1)].concat());
        let banning = policy.with_shadow(true).ban_after(2, Policy::MAX_WINDOW);
        let charge = Check::new("k", &banning, 1).take_last().unwrap();
        let counts = std::iter::once(ban::own_cost(&charge)).chain(denials_of(&charge, Step::Commit));
        let usages: Vec<u8> = counts
            .map(|count| {
                let mut runs = Runs::new();
                runs.begin(2);
                runs.add(count, Step::Commit, false, false);
                runs.packed[5]
            })
            .collect();
        assert_eq!(usages, [16, 24], "a ban of a shadow policy decides nothing either");
    }
}
