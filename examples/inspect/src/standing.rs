//! Where the client stands under a policy: its count, and the open holds beside it. Looking changes nothing.

use tollgate::{ConfigError, ErrorKind, Policy, decision::PolicyDecision, store::OpenHolds};

use crate::{Failure, commands::Client};

pub(crate) struct Standing {
    pub(crate) policy: Policy,
    /// The count and the ban, without holds.
    pub(crate) count: PolicyDecision,
    /// The holds of a policy with holds.
    pub(crate) held: Option<OpenHolds>,
    /// What is held beside the count of a policy that was given without holds.
    pub(crate) beside: Option<Beside>,
}

/// Holds that the given policy does not count.
pub(crate) enum Beside {
    /// Of a policy that has the same count.
    Count(OpenHolds),
    /// Of a concurrency limit of the same name.
    Slots(OpenHolds),
    /// The server refuses to tell.
    Unknown(tollgate::Error),
}

impl Standing {
    pub(crate) async fn of(client: &Client, policy: &Policy) -> Result<Self, Failure> {
        let decision = client.limiter.peek(&client.key, &without_holds(policy)).await?;
        let count = decision.policies().first().expect("a verdict has a standing for the policy of the check").clone();
        let (held, beside) = match policy.holds() {
            Some(_) => (Some(client.store.open_holds(&client.key, policy).await?), None),
            None => (None, beside(client, policy).await?),
        };
        Ok(Self { policy: policy.clone(), count, held, beside })
    }

    /// The units that are charged. Unknown during a ban, when nothing is available, and under shards, of which a peek
    /// reports one. A concurrency limit charges nothing.
    pub(crate) fn spent(&self) -> Option<u32> {
        let is_known = self.count.ban.is_none() && self.policy.shards() == 1 && !self.policy.is_concurrent();
        is_known.then(|| self.policy.capacity().saturating_sub(self.count.available))
    }

    /// The largest cost that would pass now.
    pub(crate) fn available(&self) -> u64 {
        u64::from(self.count.available).saturating_sub(self.held.unwrap_or_default().units)
    }

    /// Whether anything is spent, held or banned.
    pub(crate) fn is_counted(&self) -> bool {
        let held = self.held.unwrap_or_default().units > 0
            || matches!(&self.beside, Some(Beside::Count(_) | Beside::Slots(_)));
        held || self.count.ban.is_some() || !self.count.reset.is_zero()
    }

    /// The advice on holds that have not ended yet although their time-to-live has passed.
    pub(crate) fn overdue(&self) -> Option<String> {
        let overdue = self.held?.overdue;
        (overdue > 0).then(|| {
            format!(
                "{}: the time-to-live of {} has passed without a settlement; the next check of the service charges or \
                 releases their units, as its policy says",
                self.policy.name(),
                number(overdue, "hold"),
            )
        })
    }
}

impl Beside {
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
            // The same for all policies, so that it is said once.
            Self::Unknown(error) if error.to_string().contains("NOPERM") => {
                format!("cannot look for open holds beside the counts: {error}; add +zrange to the ACL of this user")
            }
            Self::Unknown(error) => format!("cannot look for open holds beside the counts: {error}"),
        }
    }
}

/// Looks for holds that a policy without holds does not count.
async fn beside(client: &Client, policy: &Policy) -> Result<Option<Beside>, Failure> {
    if policy.shards() > 1 {
        return Ok(None);
    }
    let slots = Policy::concurrent(policy.name(), policy.limit()).map_err(|error| error.to_string())?;
    for (other, found) in [(policy, Beside::Count as fn(_) -> _), (&slots, Beside::Slots)] {
        match client.store.open_holds(&client.key, other).await {
            Ok(held) if held.units > 0 => return Ok(Some(found(held))),
            Ok(_) => {}
            // A service without holds needs no permission to read them.
            Err(error) if matches!(error.kind(), ErrorKind::Misconfigured | ErrorKind::BadKey) => {
                return Ok(Some(Beside::Unknown(error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The policy of the count alone. A peek under a policy with holds would end holds whose time-to-live has passed.
fn without_holds(policy: &Policy) -> Policy {
    let Some(_) = policy.holds() else { return policy.clone() };
    let plain = || -> Result<Policy, ConfigError> {
        let mut plain = Policy::new(policy.name(), policy.limit(), policy.window())?.with_algorithm(policy.algorithm());
        if let Some(resolution) = policy.resolution() {
            plain = plain.with_resolution(resolution)?;
        }
        if let Some(burst) = policy.burst() {
            plain = plain.with_burst(burst)?;
        }
        Ok(plain)
    };
    plain().expect("the settings of a policy are valid together, also without its holds")
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

/// A number and what it counts: `1 hold`, `2 holds`.
pub(crate) fn number(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
