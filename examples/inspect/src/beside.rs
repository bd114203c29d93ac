//! Holds beside a count whose policy was given without holds.

use tollgate::{ConfigError, Error, ErrorKind, Policy, policy::HoldSettings, store::OpenHolds};

use crate::{Failure, commands::Client, number::number, same_count::count_alone};

/// Holds that the given policy does not count.
pub(crate) enum Beside {
    /// Of a policy that has the same count.
    Count(OpenHolds),
    /// Of a concurrency limit of the same name.
    Slots(OpenHolds),
    /// A value that is no set of holds, and the policy whose holds it would be.
    Unreadable(Policy, Error),
    /// The server refuses to tell.
    Unknown(Error),
}

impl Beside {
    /// Looks for holds that `policy` does not count.
    pub(crate) async fn of(client: &Client, policy: &Policy) -> Result<Option<Self>, Failure> {
        if policy.shards() > 1 {
            return Ok(None);
        }
        let (holding, slots) = holding(policy).map_err(|error| error.to_string())?;
        for (other, found) in [(holding, Self::Count as fn(_) -> _), (slots, Self::Slots)] {
            match client.store.open_holds(&client.key, &other).await {
                Ok(held) if held.units > 0 => return Ok(Some(found(held))),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::BadKey => return Ok(Some(Self::Unreadable(other, error))),
                // A service without holds needs no permission to read them.
                Err(error) if error.kind() == ErrorKind::StoreMisconfigured => return Ok(Some(Self::Unknown(error))),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Whether there is anything beside the count.
    pub(crate) fn is_something(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// The error of a value that is no set of holds.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Self::Unreadable(_, error) => Some(error),
            Self::Count(_) | Self::Slots(_) | Self::Unknown(_) => None,
        }
    }

    /// Advice to write the policy with its holds, in order to do `what`.
    pub(crate) fn advice(&self, policy: &Policy, what: &str) -> String {
        let name = policy.name();
        match self {
            Self::Count(held) => {
                format!("{name}: {} beside this count; add ,holds to its --policy to {what}", are_held(*held))
            }
            Self::Slots(held) => format!(
                "{name}: {} of a concurrency limit of this name; write --policy {name}=concurrent:{} to {what}",
                are_held(*held),
                policy.limit(),
            ),
            Self::Unreadable(..) => {
                format!("{name}: the open holds beside this count are no value of tollgate; reset removes it")
            }
            // The same for all policies, so that it is said once.
            Self::Unknown(error) if error.to_string().contains("NOPERM") => {
                format!("cannot look for open holds beside the counts: {error}; add +zrange to the ACL of this user")
            }
            Self::Unknown(error) => format!("cannot look for open holds beside the counts: {error}"),
        }
    }
}

/// The policy with holds that has the same count, and the concurrency limit of the same name.
fn holding(policy: &Policy) -> Result<(Policy, Policy), ConfigError> {
    let holding = count_alone(policy).with_holds(HoldSettings::new());
    Ok((holding, Policy::concurrent(policy.name(), policy.limit())?))
}

/// `80000 held units in 3 open holds`.
pub(crate) fn in_holds(held: OpenHolds) -> String {
    format!("{} in {}", number(held.units, "held unit"), number(held.open + held.overdue, "open hold"))
}

/// `80000 units are held in 3 open holds`.
fn are_held(held: OpenHolds) -> String {
    let verb = if held.units == 1 { "is" } else { "are" };
    format!("{} {verb} held in {}", number(held.units, "unit"), number(held.open + held.overdue, "open hold"))
}
