//! Decisions of a limiter on random policies.

use std::{error::Error, time::Duration};

use serde_json::Value;
use tollgate::{
    Algorithm, Check, Decision, Key, Limiter, ManualClock, MemoryStore, Policy, decision::PolicyDecision,
    headers::PartitionKeys,
};

use crate::case::{Quota, Situation, line};
use crate::random::Random;

/// A policy, and the partition key that it discloses.
struct Disclosed(Policy, Option<Vec<u8>>);

/// The fields for the last of a few checks of one to three random policies.
pub(crate) async fn random(random: &mut Random, number: u64) -> Result<Value, Box<dyn Error>> {
    let clock = ManualClock::default();
    clock.set_us(random.number(1_700_000_000_000_000, 4_000_000_000_000_000));
    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    let mut policies: Vec<Disclosed> = Vec::new();
    while (policies.len() as u64) < 1 + number % 3 {
        let policy = policy(random)?;
        // Two policies of a check share no name, in any case of the letters.
        if policies.iter().all(|Disclosed(other, _)| !other.name().eq_ignore_ascii_case(policy.0.name())) {
            policies.push(policy);
        }
    }
    let mut decision = check(random, &limiter, &policies).await?;
    for _ in 0..random.below(4) {
        clock.advance(random.time(Duration::from_secs(90_000)));
        decision = check(random, &limiter, &policies).await?;
    }
    let now = decision.time().ok_or("a decision of the memory store has a time")?;
    let situation = Situation {
        id: format!("decision {number}"),
        allowed: decision.is_allowed(),
        now_us: u64::try_from(now.duration_since(std::time::UNIX_EPOCH)?.as_micros())?,
        capped_ratio: !random.one_in(4),
        all_on_denial: random.one_in(4),
    };
    let standings = decision.policies().iter().zip(&policies);
    let quotas: Vec<Quota> = standings.map(|(standing, Disclosed(_, key))| quota(standing, key)).collect();
    Ok(line(&situation, &quotas, |writer, headers| writer.write(&decision, headers)))
}

async fn check(random: &mut Random, limiter: &Limiter, policies: &[Disclosed]) -> Result<Decision, Box<dyn Error>> {
    let mut check: Option<Check> = None;
    for Disclosed(policy, _) in policies {
        // One unit more than the capacity can never pass.
        let cost = random.number(0, policy.capacity() + 1);
        check = Some(match check {
            Some(check) => check.and("client", policy, cost),
            None => Check::new("client", policy, cost),
        });
    }
    Ok(limiter.check_all(check.ok_or("a case has a policy")?).await?)
}

fn policy(random: &mut Random) -> Result<Disclosed, Box<dyn Error>> {
    let limit = random.number(1, Policy::MAX_LIMIT);
    let window = random.time(Policy::MAX_WINDOW).max(Duration::from_micros(1));
    let mut policy = Policy::new(random.token(64), limit, window)?;
    policy = match random.below(4) {
        0 => policy.with_algorithm(Algorithm::FixedWindow),
        1 => policy.with_algorithm(Algorithm::SlidingWindowCounter),
        2 => bucket(random, policy.with_algorithm(Algorithm::TokenBucket)),
        _ => policy,
    };
    if random.one_in(2) {
        policy = policy.with_unit(random.token(20));
    }
    let key = random.one_in(2).then(|| random.bytes());
    if let Some(key) = key.clone() {
        policy = policy.with_partition_keys(PartitionKeys::label(move |_: &Key| key.clone()));
    }
    Ok(Disclosed(policy.validated()?, key))
}

/// With a burst, unless it takes too long to refill.
fn bucket(random: &mut Random, policy: Policy) -> Policy {
    let burst = random.number(1, policy.limit().saturating_mul(2).min(Policy::MAX_LIMIT));
    policy.clone().with_burst(burst).validated().unwrap_or(policy)
}

fn quota(standing: &PolicyDecision, partition_key: &Option<Vec<u8>>) -> Quota {
    let policy = &standing.policy;
    Quota {
        name: policy.name().to_owned(),
        limit: policy.limit(),
        capacity: policy.capacity(),
        window: policy.window(),
        unit: policy.unit().map(str::to_owned),
        partition_key: partition_key.clone(),
        remaining: standing.available,
        next: Some(standing.next),
        reset: Some(standing.reset),
        retry_after: standing.retry_after,
        violated: standing.violated,
    }
}
