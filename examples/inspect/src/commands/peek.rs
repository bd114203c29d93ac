//! Prints where the client stands under each policy.

use std::{io::Write, time::UNIX_EPOCH};

use tollgate::{ErrorKind, Policy};

use super::client::{Client, Report};
use crate::table::{self, Align, Column};
use crate::time::{exact, or_dash};
use crate::{Failure, standing::Standing};

pub(super) async fn run(
    client: &Client,
    policies: &[Policy],
    report: &mut Report,
    output: &mut impl Write,
) -> Result<(), Failure> {
    report.has_found |= print(client, policies, report, output).await?;
    Ok(())
}

/// Prints the table. Returns whether anything is counted or held for the client.
pub(super) async fn print(
    client: &Client,
    policies: &[Policy],
    report: &mut Report,
    output: &mut impl Write,
) -> Result<bool, Failure> {
    let mut standings = Vec::new();
    let mut result = Ok(());
    for policy in policies {
        let standing = match Standing::of(client, policy).await {
            Ok(standing) => standing,
            // The counts under the other policies can still be read.
            Err(Failure::Redis(error)) if error.kind() == ErrorKind::BadKey => {
                report.advise([format!("{}: a value is no count of tollgate; reset removes it", policy.name())]);
                result = Err(Failure::Redis(error));
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if let Some(error) = standing.error() {
            result = Err(Failure::Redis(error.clone()));
        }
        report.advise(standing.beside.as_ref().map(|beside| beside.advice(policy, "see them as spent")));
        report.advise(standing.bans.iter().cloned());
        report.advise(standing.overdue());
        standings.push(standing);
    }
    let shown: Vec<&ColumnOf> = COLUMNS.iter().filter(|column| (column.is_shown)(policies)).collect();
    let columns: Vec<Column> = shown.iter().map(|column| (column.title, column.align)).collect();
    let rows = standings.iter().map(|standing| shown.iter().map(|column| (column.cell)(client, standing)).collect());
    table::write(output, &columns, &rows.collect::<Vec<_>>())?;
    result.map(|()| standings.iter().any(Standing::is_counted))
}

struct ColumnOf {
    title: &'static str,
    align: Align,
    is_shown: fn(&[Policy]) -> bool,
    cell: fn(&Client, &Standing) -> String,
}

/// A column of every table.
const fn column(title: &'static str, align: Align, cell: fn(&Client, &Standing) -> String) -> ColumnOf {
    ColumnOf { title, align, is_shown: |_| true, cell }
}

/// A column that only holds fill.
const fn of_holds(title: &'static str, cell: fn(&Client, &Standing) -> String) -> ColumnOf {
    let is_shown = |policies: &[Policy]| policies.iter().any(|policy| policy.holds().is_some());
    ColumnOf { title, align: Align::Right, is_shown, cell }
}

const COLUMNS: [ColumnOf; 11] = [
    column("policy", Align::Left, |_, standing| standing.policy.name().to_owned()),
    // The counts are in Redis, and the limit is not.
    column("limit (as given)", Align::Left, |_, standing| limit(&standing.policy)),
    column("spent", Align::Right, |_, standing| standing.spent.map_or_else(dash, |spent| spent.to_string())),
    of_holds("held", |_, standing| standing.held.map_or_else(dash, |held| held.units.to_string())),
    of_holds("open", |_, standing| standing.held.map_or_else(dash, |held| held.open.to_string())),
    of_holds("until (last)", |_, standing| or_dash(standing.held.unwrap_or_default().last_end)),
    column("available", Align::Right, |_, standing| standing.available().to_string()),
    column("next unit", Align::Right, |_, standing| or_dash(standing.count.next)),
    column("reset", Align::Right, |_, standing| or_dash(standing.count.reset)),
    column("ban", Align::Right, |_, standing| or_dash(standing.count.ban.unwrap_or_default())),
    column("redis key", Align::Left, |client, standing| match standing.policy.shards() {
        1 => client.store.redis_key(&client.key, &standing.policy),
        shards => format!("one for each of {shards} shards"),
    }),
];

fn dash() -> String {
    "-".to_owned()
}

/// The limit as in `--policy`: `60/1m`.
fn limit(policy: &Policy) -> String {
    let Some(window) = policy.window() else {
        let what = if policy.calendar_window(UNIX_EPOCH).is_some() { "by calendar" } else { "at once" };
        return format!("{} {what}", policy.limit());
    };
    let rate = format!("{}/{}", policy.limit(), exact(window));
    match policy.burst() {
        Some(burst) if burst != policy.limit() => format!("{rate} burst {burst}"),
        _ => rate,
    }
}
