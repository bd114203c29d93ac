//! Changes the client's counts by hand: bans the client, ends a ban, charges units or gives them back.

use std::{io::Write, time::Duration};

use tollgate::Policy;

use super::client::{Client, DENIALS, Report};
use super::peek;
use crate::table::{self, Align};
use crate::time::{exact, rounded};
use crate::{Failure, beside::Beside, number::number, standing::Standing};

/// A change of the counts.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Ban(Duration),
    Unban,
    Take(u64),
    Give(u64),
}

/// When the service notices a ban.
const BAN: &str = "each process of the service refuses the client from its next check on; requests that run go on";

/// When the service notices units that are charged.
const TAKEN: &str = "each process of the service counts these units from its next check on";

/// What a server that refuses to write has done.
const UNCHANGED: &str = "nothing was changed";

/// What to do after a change without an answer.
const UNKNOWN: &str = "the change may have been made; look with peek before you repeat it";

pub(super) async fn run(
    client: &Client,
    policies: &[Policy],
    change: Change,
    report: &mut Report,
    output: &mut impl Write,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut result = Ok(());
    let mut has_changed = false;
    for policy in policies {
        let before = match Standing::of(client, policy).await {
            Ok(before) => before,
            Err(error) => {
                rows.push(row(policy, "nothing"));
                result = Err(error);
                break;
            }
        };
        report.has_found |= before.is_counted();
        match change.make(client, &before).await {
            Ok(changed) => {
                rows.push(row(policy, &change.done(&before, changed)));
                has_changed |= changed > 0 && !change.refuses_nothing(policy);
                report.advise(change.advice(&before, changed));
            }
            // What was done before is printed first.
            Err(error) => {
                let is_unchanged = !error.may_have_charged() && change.is_one_command(&before);
                rows.push(row(policy, if is_unchanged { "nothing" } else { "unknown" }));
                report.advise([format!("{}: {}", policy.name(), if is_unchanged { UNCHANGED } else { UNKNOWN })]);
                result = Err(error.into());
                break;
            }
        }
    }
    if has_changed {
        report.advise([change.expectation().to_owned()]);
    }
    table::write(output, &[("policy", Align::Left), ("done", Align::Left)], &rows)?;
    result?;
    writeln!(output)?;
    peek::print(client, policies, report, output).await.map(|_| ())
}

fn row(policy: &Policy, done: &str) -> Vec<String> {
    vec![policy.name().to_owned(), done.to_owned()]
}

impl Change {
    /// Changes the count under one policy. Returns how many units or bans were changed.
    async fn make(self, client: &Client, before: &Standing) -> Result<u64, tollgate::Error> {
        let Client { limiter, key, .. } = client;
        let policy = &before.policy;
        match self {
            Self::Ban(duration) => limiter.ban(key, policy, duration).await.map(|()| 1),
            Self::Unban => {
                // The numbers of the service come first: with others, a ban ends and is not known to have been one.
                let mut ended = 0;
                for policy in before.denials.iter().map(|denials| &denials.policy).chain([policy]) {
                    ended += u64::from(limiter.unban(key, policy).await?);
                }
                Ok(ended)
            }
            Self::Take(units) => limiter.record(key, policy, units).await.map(|()| units),
            Self::Give(units) => limiter.credit(key, policy, units).await,
        }
    }

    /// Whether the server makes the whole change or none of it.
    fn is_one_command(self, before: &Standing) -> bool {
        let ends_several_bans = matches!(self, Self::Unban) && !before.denials.is_empty();
        before.policy.shards() == 1 && !ends_several_bans
    }

    fn done(self, before: &Standing, changed: u64) -> String {
        let left = before.count.ban.map(rounded);
        match (self, changed) {
            (Self::Ban(duration), _) => {
                let earlier = left.map_or_else(String::new, |left| format!(" (was banned for {left} more)"));
                format!("banned for {}{earlier}", exact(duration))
            }
            (Self::Unban, 0) => "nothing: no ban was found".to_owned(),
            (Self::Unban, _) => {
                "a ban ended".to_owned() + &left.map_or_else(String::new, |left| format!(", of which {left} were left"))
            }
            (Self::Take(_), _) => format!("{} charged", units(changed)),
            (Self::Give(_), 0) => "nothing: no units are spent".to_owned(),
            (Self::Give(wanted), _) if changed < wanted => {
                format!("{changed} of {} given back: no more were spent", units(wanted))
            }
            (Self::Give(_), _) => format!("{} given back", units(changed)),
        }
    }

    /// What is special about the change under this policy.
    fn advice(self, before: &Standing, changed: u64) -> Vec<String> {
        let (policy, name) = (&before.policy, before.policy.name());
        let mut advice = Vec::new();
        if let Some(beside @ Beside::Slots(_)) = &before.beside {
            advice.push(beside.advice(policy, "change that limit instead"));
        }
        match (self, policy.lease()) {
            _ if self.refuses_nothing(policy) => {
                advice.push(format!("{name}: this is a shadow policy, which reports the ban and refuses nothing"));
            }
            (Self::Ban(_) | Self::Take(_), Some(_)) => advice.push(format!(
                "{name}: each process may still spend its blocks of the lease, which last for some milliseconds"
            )),
            (Self::Unban, _) if changed == 0 && policy.window().is_some() => advice.push(format!(
                "{name}: if the service bans after denials, for an unusual time such as 3607s, write its words too: \
                 {name}=RATE,ban-after=20/3607s"
            )),
            _ => {}
        }
        advice
    }

    /// Whether the change is a ban that no request notices.
    fn refuses_nothing(self, policy: &Policy) -> bool {
        matches!(self, Self::Ban(_)) && policy.is_shadow()
    }

    /// When the service notices the change.
    fn expectation(self) -> &'static str {
        match self {
            Self::Ban(_) => BAN,
            Self::Take(_) => TAKEN,
            Self::Unban | Self::Give(_) => DENIALS,
        }
    }
}

fn units(count: u64) -> String {
    number(count, "unit")
}
