//! Forgets what the client has spent and holds, and lifts bans.

use std::io::Write;

use tollgate::{ErrorKind, Policy};

use super::client::{Client, DENIALS, Report};
use crate::beside::{Beside, in_holds};
use crate::table::{self, Align};
use crate::{Failure, bans::Denials, standing::Standing, time::rounded};

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
    let Some(standing) = standing else {
        let (denials, beside) = (Denials::beside(client, policy).await?, Beside::of(client, policy).await?);
        let had = Removed::by_reset(client, policy, &denials, beside.as_ref()).await?;
        report.has_found |= had.is_something();
        return Ok(had.is_something().then(|| "a value that is no count of tollgate".to_owned()));
    };
    let left = standing.beside.as_ref().filter(|beside| beside.error().is_none());
    report.advise(left.map(|beside| beside.advice(policy, "remove them too")));
    report.has_found |= standing.is_counted();
    let had = Removed::by_reset(client, policy, &standing.denials, standing.beside.as_ref()).await?;
    if !had.is_something() {
        return Ok(None);
    }
    report.has_found = true;
    if standing.held.is_some_and(|held| held.units > 0) {
        report.advise([after_holds(policy)]);
    }
    Ok(Some(removed(&standing, &had)))
}

/// Which of the Redis keys of a policy there were.
struct Removed {
    /// The count, and the denials and holds that the given policy has.
    count: bool,
    /// Denials with other numbers than those of the given policy.
    denials: bool,
    /// Open holds whose value is damaged.
    holds: bool,
}

impl Removed {
    async fn by_reset(
        client: &Client,
        policy: &Policy,
        denials: &[Denials],
        beside: Option<&Beside>,
    ) -> Result<Self, Failure> {
        let Client { limiter, key, .. } = client;
        let mut had = Self { count: limiter.reset(key, policy).await?, denials: false, holds: false };
        for denials in denials {
            had.denials |= limiter.reset(key, &denials.policy).await?;
        }
        if let Some(Beside::Unreadable(holding, _)) = beside {
            had.holds = limiter.reset(key, holding).await?;
        }
        Ok(had)
    }

    fn is_something(&self) -> bool {
        self.count || self.denials || self.holds
    }
}

fn removed(standing: &Standing, had: &Removed) -> String {
    let policy = &standing.policy;
    let held = standing.held.filter(|held| held.units > 0).map(in_holds);
    let is_only_count = held.is_none() && !had.denials && !had.holds && standing.count.ban.is_none();
    let count = match standing.spent {
        _ if !had.count => None,
        Some(spent) if spent.units > policy.capacity() => {
            Some(format!("{spent} units, more than the limit of {}", policy.capacity()))
        }
        Some(spent) if spent.units > 0 => Some(format!("{spent} of {} units", policy.capacity())),
        Some(_) => is_only_count.then(|| "an old count with nothing spent, or a pause".to_owned()),
        None if policy.shards() > 1 => Some(format!("the counts of {} shards", policy.shards())),
        None => held.is_none().then(|| "the count".to_owned()),
    };
    let holds = had.holds.then(|| "open holds that are no value of tollgate".to_owned());
    let ban = standing.count.ban.map(|ban| format!("a ban of {}", rounded(ban)));
    let denials = (had.denials && ban.is_none()).then(|| "the denials that were counted".to_owned());
    let counts = [count, held, holds, denials].into_iter().flatten().collect::<Vec<_>>().join(", and ");
    match ban {
        None => counts,
        Some(ban) if counts.is_empty() => ban,
        Some(ban) => format!("{counts} and {ban}"),
    }
}

/// What to expect after open holds were removed: the work for which the units were held goes on.
fn after_holds(policy: &Policy) -> String {
    let name = policy.name();
    match policy.lease() {
        _ if policy.window().is_none() => {
            let limit = policy.limit();
            format!(
                "{name}: requests that held these slots may still run, so more than {limit} may run at once for now"
            )
        }
        Some(block) => format!(
            "{name}: each process may still spend what it holds, at most two blocks of {block} units, and it is not \
             counted"
        ),
        None => format!(
            "{name}: requests that held these units may still run, and are charged only for what they use beyond them"
        ),
    }
}
