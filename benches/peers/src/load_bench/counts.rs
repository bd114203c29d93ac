//! Each generator's own count of allowed and denied requests agrees with the limit and with the server's count.

use std::{thread, time::Duration};

use serde_json::json;

use super::site::{Limit, Variant};
use super::tools::{Amount, IN_FLIGHT, Protocol, Tool};
use super::{bench::Bench, outcome::Outcome};
use crate::{Result, report::Report};

/// Units that do not come back while a generator runs.
const LIMIT: Limit = Limit { units: 64 * IN_FLIGHT, window: "1h", counted: true };
/// The same number on each connection, because hey sends no others.
const REQUESTS: u64 = 3 * LIMIT.units;

pub fn run(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    println!("each generator against a limit of {} requests", LIMIT.units);
    let mut faults = Vec::new();
    for variant in [Variant::Memory, Variant::Redis] {
        for protocol in Protocol::ALL {
            for tool in bench.programs.tools(protocol) {
                bench.redis.clear()?;
                let site = bench.start(variant, LIMIT)?;
                let amount = amount(tool);
                let outcome = bench.programs.run(tool, protocol, amount, &site.url())?;
                let named = format!("{} over {}, counts in {}", tool.name(), protocol.name(), variant.name());
                faults.extend(judge(outcome, amount, site.counted()?).map(|fault| format!("{named}: {fault}")));
                println!("  {named}: {} allowed, {} denied, {} failed", outcome.ok, outcome.denied, outcome.failed);
                report.figure(json!({
                    "generator": tool.name(), "protocol": protocol.name(), "variant": variant.name(),
                    "allowed": outcome.ok, "denied": outcome.denied, "failed": outcome.failed,
                }));
            }
        }
    }
    faults.extend(two_servers(bench)?);
    if faults.is_empty() { Ok(()) } else { Err(format!("the counts do not agree:\n{}", faults.join("\n")).into()) }
}

fn amount(tool: Tool) -> Amount {
    // wrk needs far less than a second for as many requests.
    if tool.counts_requests() { Amount::Requests(REQUESTS) } else { Amount::Time(Duration::from_secs(2)) }
}

/// What does not agree with the limit, with the number of requests, or with the server's count.
fn judge(outcome: Outcome, amount: Amount, counted: (u64, u64)) -> impl Iterator<Item = String> {
    let Outcome { ok, denied, failed, .. } = outcome;
    let unexpected_number = matches!(amount, Amount::Requests(number) if ok + denied != number);
    // After a time, a generator does not count the requests in flight. They were denied, because the limit was reached.
    let uncounted = counted.1.checked_sub(denied);
    [
        (ok != LIMIT.units).then(|| format!("{ok} allowed, the limit is {}", LIMIT.units)),
        (failed > 0).then(|| format!("{failed} neither allowed nor denied")),
        unexpected_number.then(|| format!("{ok} allowed and {denied} denied of {amount:?}")),
        (counted.0 != ok).then(|| format!("{ok} allowed, by the count of the server {}", counted.0)),
        uncounted
            .is_none_or(|uncounted| uncounted > IN_FLIGHT)
            .then(|| format!("{denied} denied, by the count of the server {}", counted.1)),
    ]
    .into_iter()
    .flatten()
}

/// All generators at once, on two servers that count in one Redis.
fn two_servers(bench: &Bench<'_>) -> Result<Option<String>> {
    bench.redis.clear()?;
    let sites = [bench.start(Variant::Redis, LIMIT)?, bench.start(Variant::Redis, LIMIT)?];
    let outcomes = thread::scope(|scope| {
        let running: Vec<_> = (bench.programs.tools(Protocol::Http1).zip(sites.iter().cycle()))
            .map(|(tool, site)| {
                scope.spawn(move || bench.programs.run(tool, Protocol::Http1, amount(tool), &site.url()))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect::<Result<Vec<Outcome>>>()
    })?;
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (ok, denied, failed) = (sum(|one| one.ok), sum(|one| one.denied), sum(|one| one.failed));
    println!("  all at once, two servers on one Redis: {ok} allowed, {denied} denied, {failed} failed");
    let is_right = ok == LIMIT.units && failed == 0;
    Ok((!is_right).then(|| format!("all at once: {ok} allowed and {failed} failed, the limit is {}", LIMIT.units)))
}
