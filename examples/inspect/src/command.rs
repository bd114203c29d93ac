//! The two commands, and what they print.

use std::io::Write;

use tollgate::{Error, ErrorKind, Key, Limiter, Policy, RedisStore, decision::PolicyDecision};

use crate::{
    Failure,
    arguments::{Arguments, Command},
    table::{self, Align},
    time::{exact, rounded},
};

const NOTHING_COUNTED: &str = "nothing is counted for this key; compare the kind of the key, the prefix, the secret, \
                               and the name, algorithm, window and resolution of the policy with the service's";

pub(crate) async fn run(arguments: Arguments, output: &mut impl Write) -> Result<(), Failure> {
    let Arguments { command, key, policies, settings } = arguments;
    let timeout = settings.timeout;
    let store = settings.store().map_err(|error| error.to_string())?;
    // Failures are printed as errors of the commands, so the limiter need not report them as well.
    let limiter = Limiter::new(store.clone()).quiet();
    // A wrong password or an unreachable server fails here, with the server's own message.
    let ready = tokio::time::timeout(timeout, limiter.ready()).await;
    ready.unwrap_or_else(|_| Err(Error::new(ErrorKind::Deadline, format!("no answer within {}", exact(timeout)))))?;
    let found = match command {
        Command::Peek => peek(&limiter, &store, &key, &policies, output).await?,
        Command::Reset => reset(&limiter, &key, &policies, output).await?,
    };
    if !found {
        eprintln!("tollgate-inspect: {NOTHING_COUNTED}");
    }
    Ok(())
}

/// Prints where the key stands under each policy. Returns whether anything is spent.
async fn peek(
    limiter: &Limiter,
    store: &RedisStore,
    key: &Key,
    policies: &[Policy],
    output: &mut impl Write,
) -> Result<bool, Failure> {
    let mut rows = Vec::new();
    let mut found = false;
    for policy in policies {
        let standing = standing(limiter, key, policy).await?;
        found |= is_spent(&standing);
        let redis_key = match policy.shards() {
            1 => store.redis_key(key, policy),
            shards => format!("one for each of {shards} shards"),
        };
        let next = if standing.next.is_zero() { "-".to_owned() } else { rounded(standing.next) };
        rows.push([
            policy.name().to_owned(),
            limit(policy),
            spent(&standing).map_or_else(|| "-".to_owned(), |units| units.to_string()),
            standing.available.to_string(),
            next,
            if standing.reset.is_zero() { "-".to_owned() } else { rounded(standing.reset) },
            standing.ban.map_or_else(|| "-".to_owned(), rounded),
            redis_key,
        ]);
    }
    let columns = [
        ("policy", Align::Left),
        ("limit", Align::Left),
        ("spent", Align::Right),
        ("available", Align::Right),
        ("next unit", Align::Right),
        ("reset", Align::Right),
        ("ban", Align::Right),
        ("redis key", Align::Left),
    ];
    table::write(output, columns, &rows)?;
    Ok(found)
}

/// Forgets what the key has spent, and prints what was removed. Returns whether anything was removed.
async fn reset(limiter: &Limiter, key: &Key, policies: &[Policy], output: &mut impl Write) -> Result<bool, Failure> {
    let mut rows = Vec::new();
    let mut found = false;
    let mut result = Ok(());
    for policy in policies {
        match reset_one(limiter, key, policy).await {
            Ok(removed) => {
                found |= removed.is_some();
                rows.push([policy.name().to_owned(), removed.unwrap_or_else(|| "nothing".to_owned())]);
            }
            // What was removed before is printed first.
            Err(error) => {
                rows.push([policy.name().to_owned(), "unknown".to_owned()]);
                result = Err(error);
                break;
            }
        }
    }
    table::write(output, [("policy", Align::Left), ("removed", Align::Left)], &rows)?;
    result.map(|()| found)
}

/// What was removed, or `None` if there was nothing to remove.
async fn reset_one(limiter: &Limiter, key: &Key, policy: &Policy) -> Result<Option<String>, Failure> {
    let standing = standing(limiter, key, policy).await?;
    if !limiter.reset(key, policy).await? {
        return Ok(None);
    }
    let units = match spent(&standing) {
        Some(0) => "an old count with nothing spent".to_owned(),
        Some(units) => format!("{units} of {} units", policy.capacity()),
        None if policy.shards() > 1 => format!("the counts of {} shards", policy.shards()),
        None => "the count".to_owned(),
    };
    let ban = standing.ban.map_or_else(String::new, |ban| format!(" and a ban of {}", rounded(ban)));
    Ok(Some(units + &ban))
}

async fn standing(limiter: &Limiter, key: &Key, policy: &Policy) -> Result<PolicyDecision, Failure> {
    let decision = limiter.peek(key, policy).await?;
    let standing = decision.policies().first();
    Ok(standing.expect("a verdict has a standing for the policy of the check").clone())
}

/// The units spent. Unknown during a ban, when nothing is available, and under shards, of which a peek reports one.
fn spent(standing: &PolicyDecision) -> Option<u32> {
    let is_known = standing.ban.is_none() && standing.policy.shards() == 1;
    is_known.then(|| standing.policy.capacity().saturating_sub(standing.available))
}

fn is_spent(standing: &PolicyDecision) -> bool {
    standing.ban.is_some() || !standing.reset.is_zero()
}

/// The limit as in `--policy`: `60/1m`.
fn limit(policy: &Policy) -> String {
    let rate = format!("{}/{}", policy.limit(), exact(policy.window()));
    match policy.burst() {
        Some(burst) if burst != policy.limit() => format!("{rate} burst {burst}"),
        _ => rate,
    }
}
