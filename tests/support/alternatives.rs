//! Random traces of checks with alternatives beside the same traffic without any: a check of which the first of several
//! policies is charged is the plain check of that policy or, if none has room, the plain check of all of them.

use std::time::Duration;

use tollgate::store::{Answer, CountChange, Outcome, Store};
use tollgate::{Check, ManualClock, Policy};

use super::{ALGORITHMS, random::Random};

/// Runs one trace of `steps` steps. In every other trace, policies count rejections or ban keys after denials; in the
/// others, counts are changed by hand. Returns how often the first, the second, the third, and no alternative was
/// charged.
pub async fn twin_trace(store: &dyn Store, clock: &ManualClock, seed: u64, steps: usize) -> [usize; 4] {
    let mut random = Random(seed);
    let [beside, alternatives @ ..] = policies(&mut random, seed);
    let mut charged = [0; 4];
    for step in 0..steps {
        let longest = random.pick(&[0, 1, 700, 9_000, 60_000]);
        clock.advance(Duration::from_micros(random.below(longest + 1)));
        if seed.is_multiple_of(2) && random.one_in(8) {
            let policy = &alternatives[random.index(alternatives.len())];
            let change = match random.below(4) {
                0 => CountChange::Ban(Duration::from_micros(1 + random.below(40_000))),
                1 => CountChange::Unban,
                2 => CountChange::Record(random.cost(3)),
                _ => CountChange::Credit(random.cost(3)),
            };
            let one = answer(store.change_count(&"one".into(), policy, change)).await;
            let twin = answer(store.change_count(&"twin".into(), policy, change)).await;
            assert_eq!(one, twin, "seed {seed}, step {step}: {change:?}");
            continue;
        }
        let number = 1 + random.index(3);
        let (asked, cost, beside_cost) = (&alternatives[..number], random.cost(4), random.below(3));
        let check = Check::first_of("one", asked, cost).and("one", &beside, beside_cost);
        let mut room = Vec::new();
        for policy in asked {
            room.push(answer(store.check(&Check::new("twin", policy, 0))).await.outcomes[0].available >= cost);
        }
        let chosen = room.iter().position(|has_room| *has_room);
        let plain = match chosen {
            Some(chosen) => Check::new("twin", &asked[chosen], cost),
            None => {
                asked.iter().fold(Check::new("twin", &asked[0], 0), |check, policy| check.and("twin", policy, cost))
            }
        };
        let plain = plain.and("twin", &beside, beside_cost);
        let (verdict, twin) = (answer(store.check(&check)).await, answer(store.check(&plain)).await);
        let why = format!("seed {seed}, step {step}, room {room:?}: {check:#?}\n{verdict:#?}\n{twin:#?}");
        assert_eq!(verdict.allowed, twin.allowed, "{why}");
        let named: Vec<usize> = chosen.map_or((0..number).collect(), |chosen| vec![chosen]);
        for (number, twin) in named.into_iter().chain([number]).zip(&twin.outcomes) {
            assert_eq!(verdict.outcomes[number], *twin, "{why}");
        }
        // Those that are left out are as they were.
        for number in (0..number).filter(|number| chosen.is_some_and(|chosen| chosen != *number)) {
            let peek = answer(store.check(&Check::new("twin", &asked[number], 0))).await.outcomes[0];
            let seen = verdict.outcomes[number];
            let standing = |outcome: Outcome| (outcome.available, outcome.next_us, outcome.reset_us, outcome.ban_us);
            assert_eq!(standing(seen), standing(peek), "{why}");
        }
        charged[chosen.unwrap_or(3)] += 1;
    }
    charged
}

/// A policy beside the alternatives, and three alternatives.
fn policies(random: &mut Random, seed: u64) -> [Policy; 4] {
    let mut policy = |number: usize| {
        let algorithm = random.pick(&ALGORITHMS);
        let (limit, window) = (4 + random.below(8), 20_000 + random.below(100_000));
        let policy = Policy::new(format!("p{number}-{seed}"), limit, Duration::from_micros(window)).unwrap();
        let counts = !seed.is_multiple_of(2);
        let policy = policy.with_algorithm(algorithm).with_denials_counted(counts && random.one_in(3));
        match counts && number > 0 && random.one_in(3) {
            true => policy.ban_after(2, Duration::from_micros(1 + random.below(60_000))),
            false => policy,
        }
    };
    [policy(0), policy(1), policy(2), policy(3)]
}

async fn answer<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Ready(result) => result.unwrap(),
        Answer::Pending(pending) => pending.await.unwrap(),
    }
}
