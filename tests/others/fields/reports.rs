//! Quotas that are counted outside of a limiter: arbitrary ones.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tollgate::headers::QuotaReport;

use crate::case::{Quota, Situation, line};
use crate::random::Random;

/// The case with the fields of a writer for these quotas.
pub(crate) fn case(situation: &Situation, quotas: &[Quota]) -> Value {
    let reports: Vec<QuotaReport<'_>> = quotas.iter().map(report).collect();
    let now = UNIX_EPOCH + Duration::from_micros(situation.now_us);
    line(situation, quotas, |writer, headers| writer.write_quotas(&reports, situation.allowed, now).apply(headers))
}

fn report(quota: &Quota) -> QuotaReport<'_> {
    let report = QuotaReport::new(&quota.name, quota.limit, quota.remaining)
        .with_capacity(quota.capacity)
        .with_window(quota.window)
        .with_unit(quota.unit.as_deref())
        .with_partition_key(quota.partition_key.as_deref())
        .with_waits(quota.next, quota.reset);
    if quota.violated { report.denied(quota.retry_after) } else { report }
}

/// One to four arbitrary quotas. Names and units include those that no policy accepts.
pub(crate) fn random(random: &mut Random, number: u64) -> Value {
    let allowed = random.one_in(2);
    let mut quotas: Vec<Quota> = (0..1 + random.below(4)).map(|_| quota(random, !allowed)).collect();
    if !allowed && let Some(first) = quotas.first_mut() {
        first.violated = true;
    }
    let situation = Situation {
        id: format!("report {number}"),
        allowed,
        now_us: random.number(1_700_000_000_000_000, 4_000_000_000_000_000),
        capped_ratio: !random.one_in(4),
        all_on_denial: random.one_in(4),
    };
    case(&situation, &quotas)
}

fn quota(random: &mut Random, may_be_violated: bool) -> Quota {
    // Above the largest Integer, so that some numbers have to be cut.
    let limit = random.number(1, 9_999_999_999_999_999);
    let capacity = if random.one_in(4) { random.number(limit, 9_999_999_999_999_999) } else { limit };
    let most = Duration::from_secs(366 * 86_400);
    let next = (!random.one_in(8)).then(|| random.time(most));
    let reset = next.map(|next| next + random.time(most));
    let violated = may_be_violated && random.one_in(2);
    Quota {
        name: random.text(),
        limit,
        capacity,
        window: (!random.one_in(4)).then(|| random.time(most)),
        unit: random.one_in(2).then(|| random.text()),
        partition_key: random.one_in(2).then(|| random.bytes()),
        remaining: random.number(0, capacity),
        next,
        reset,
        retry_after: (violated && !random.one_in(8)).then(|| next.unwrap_or_default() + random.time(most)),
        violated,
    }
}
