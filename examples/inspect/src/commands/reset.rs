//! Forgets what the client has spent and holds, and lifts bans.

use std::io::Write;

use tollgate::{ErrorKind, Policy, store::OpenHolds};

use super::client::{Client, DENIALS, Report};
use crate::{
    Failure,
    standing::{Standing, in_holds},
    table::{self, Align},
    time::rounded,
};

pub(super) async fn run(
    client: &Client,
    policies: &[Policy],
    report: &mut Report,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut result = Ok(());
    for policy in policies {
        match reset(client, policy, report).await {
            Ok(removed) => rows.push(vec![policy.name().to_owned(), removed.unwrap_or_else(|| "nothing".to_owned())]),
            // What was removed before is printed first.
            Err(error) => {
                rows.push(vec![policy.name().to_owned(), "unknown".to_owned()]);
                result = Err(error);
                break;
            }
        }
    }
    if rows.iter().any(|row| row[1] != "nothing") {
        report.advise([DENIALS.to_owned()]);
    }
    table::write(output, &[("policy", Align::Left), ("removed", Align::Left)], &rows)?;
    result
}

/// What was removed, or `None` if there was nothing to remove.
async fn reset(client: &Client, policy: &Policy, report: &mut Report) -> Result<Option<String>, Failure> {
    let standing = match Standing::of(client, policy).await {
        Ok(standing) => Some(standing),
        // A reset is the remedy for a value that cannot be read.
        Err(Failure::Redis(error)) if error.kind() == ErrorKind::BadKey => None,
        Err(error) => return Err(error),
    };
    if let Some(standing) = &standing {
        report.advise(standing.beside.as_ref().map(|beside| beside.advice(policy, "remove them too")));
        report.has_found |= standing.is_counted();
    }
    if !client.limiter.reset(&client.key, policy).await? {
        return Ok(None);
    }
    report.has_found = true;
    let Some(standing) = standing else { return Ok(Some("a value that is no count of tollgate".to_owned())) };
    let held = standing.held.filter(|held| held.units > 0);
    report.advise(held.map(|_| after_holds(policy)));
    Ok(Some(removed(&standing, held)))
}

fn removed(standing: &Standing, held: Option<OpenHolds>) -> String {
    let policy = &standing.policy;
    let held = held.map(in_holds);
    let count = match standing.spent() {
        Some(0) | None if held.is_some() => return held.unwrap_or_default(),
        Some(0) => "an old count with nothing spent".to_owned(),
        Some(units) => format!("{units} of {} units", policy.capacity()),
        None if policy.shards() > 1 => format!("the counts of {} shards", policy.shards()),
        None => "the count".to_owned(),
    };
    let held = held.map_or_else(String::new, |held| format!(", and {held}"));
    let ban = standing.count.ban.map_or_else(String::new, |ban| format!(" and a ban of {}", rounded(ban)));
    count + &held + &ban
}

/// What to expect after open holds were removed: the work for which the units were held goes on.
fn after_holds(policy: &Policy) -> String {
    let name = policy.name();
    match policy.lease() {
        _ if policy.is_concurrent() => {
            let limit = policy.limit();
            format!(
                "{name}: requests that held these slots may still run, so more than {limit} may run at once for now"
            )
        }
        Some(block) => format!(
            "{name}: each process may still spend what it holds, at most two blocks of {block} units, and it is not \
             counted"
        ),
        None => format!("{name}: requests that held these units may still run, and nothing is charged when they end"),
    }
}
