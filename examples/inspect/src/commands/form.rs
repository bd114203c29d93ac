//! How a command is written: its name, and what stands behind the KEYs.

use std::time::Duration;

use tollgate::Policy;

use super::by_hand::Change;
use crate::time;

/// What the program does with the client.
#[derive(Clone, Copy)]
pub(crate) enum Command {
    Peek,
    Reset,
    Change(Change),
}

/// A command whose arguments are not read yet.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    name: &'static str,
    amount: Amount,
}

/// What stands behind the KEYs.
#[derive(Clone, Copy)]
enum Amount {
    Nothing(Command),
    Time(fn(Duration) -> Change),
    Units(fn(u64) -> Change),
}

/// The commands by name.
const COMMANDS: [(&str, Amount); 6] = [
    ("peek", Amount::Nothing(Command::Peek)),
    ("reset", Amount::Nothing(Command::Reset)),
    ("ban", Amount::Time(Change::Ban)),
    ("unban", Amount::Nothing(Command::Change(Change::Unban))),
    ("take", Amount::Units(Change::Take)),
    ("give", Amount::Units(Change::Give)),
];

impl Form {
    pub(crate) fn parse(name: Option<&str>) -> Result<Self, String> {
        let found = COMMANDS.iter().find(|(command, _)| Some(*command) == name);
        found.map(|(name, amount)| Self { name, amount: *amount }).ok_or_else(|| {
            let wrong = name.map_or("no command".to_owned(), |name| format!("{name:?} is not a command"));
            let [first @ .., last] = COMMANDS.map(|(command, _)| command);
            format!("{wrong}: write {} or {last}; see --help", first.join(", "))
        })
    }

    /// Takes the time or the number of units from the end of `words`, and leaves the KEYs.
    pub(crate) fn take_amount(self, words: &mut Vec<String>) -> Result<Command, String> {
        let name = self.name;
        match self.amount {
            Amount::Nothing(command) => Ok(command),
            Amount::Time(change) => {
                let text =
                    last(words).ok_or_else(|| format!("{name}: no time: write it behind the KEY: {name} KEY 10m"))?;
                let time = time::parse(&text).filter(|time| *time <= Policy::MAX_WINDOW);
                let time = time.ok_or_else(|| {
                    let longest = time::exact(Policy::MAX_WINDOW);
                    format!(
                        "{name}: {text:?} is not a time from 1ms to {longest}: write 90s, 10m, 2h or 1d behind the KEY"
                    )
                })?;
                Ok(Command::Change(change(time)))
            }
            Amount::Units(change) => {
                let text = last(words)
                    .ok_or_else(|| format!("{name}: no number of units: write it behind the KEY: {name} KEY 100"))?;
                let units = units(&text).ok_or_else(|| {
                    format!(
                        "{name}: {text:?} is not a number of units from 1 to {}: write {name} KEY 100",
                        Policy::MAX_LIMIT
                    )
                })?;
                Ok(Command::Change(change(units)))
            }
        }
    }

    /// Whether the command is for all clients (`--all`), and is confirmed (`--yes`). A KEY or a policy is too much.
    pub(crate) fn check_all(self, all: bool, yes: bool, names_some: bool) -> Result<(), String> {
        match self {
            _ if !all => Err("--yes confirms reset --all: write --all too, or leave it out".to_owned()),
            Self { amount: Amount::Nothing(Command::Reset), .. } if names_some => {
                Err("reset --all resets all clients under all policies: leave out KEY, --policy and --config, or \
                     leave out --all"
                    .to_owned())
            }
            Self { amount: Amount::Nothing(Command::Reset), .. } if !yes => {
                Err("reset --all forgets what all clients with this prefix have spent and hold, and their bans: write \
                     --yes too if that is meant"
                    .to_owned())
            }
            Self { amount: Amount::Nothing(Command::Reset), .. } => Ok(()),
            Self { name, .. } => Err(format!("{name} is for one client: only reset has --all")),
        }
    }

    /// Whether the command can be carried out under these policies.
    pub(crate) fn check(self, policies: &[Policy]) -> Result<(), String> {
        let Self { name, amount: Amount::Units(_) } = self else { return Ok(()) };
        let [policy] = policies else {
            let names: Vec<&str> = policies.iter().map(Policy::name).collect();
            return Err(format!(
                "{name} changes one policy, and these are several: name one of {} by --policy",
                names.join(", ")
            ));
        };
        let why = match policy.shards() {
            _ if policy.window().is_none() => "is a concurrency limit, which charges no units",
            1 => return Ok(()),
            _ => "has shards, each with units of its own",
        };
        Err(format!("{name}: policy {} {why}: ban or reset the key instead", policy.name()))
    }
}

/// The last word, unless it is a KEY, which may be a secret that no message may contain.
fn last(words: &mut Vec<String>) -> Option<String> {
    words.pop_if(|word| !word.contains(':'))
}

fn units(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten().filter(|units| (1..=Policy::MAX_LIMIT).contains(units))
}
