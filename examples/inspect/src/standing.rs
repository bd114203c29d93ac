//! Where the client stands under a policy: its count, its ban, and the open holds beside it. Looking changes nothing.

use std::fmt;

use tollgate::{Policy, decision::PolicyDecision, store::OpenHolds};

use crate::same_count::{count_alone, widest};
use crate::{Failure, bans::Denials, beside::Beside, commands::Client, number::number};

pub(crate) struct Standing {
    pub(crate) policy: Policy,
    /// The count and the ban that ends last, without holds.
    pub(crate) count: PolicyDecision,
    /// The units that are charged. Unknown during a ban, when nothing is available, and under shards, of which a peek
    /// reports one. A concurrency limit charges nothing.
    pub(crate) spent: Option<Spent>,
    /// The denials that are counted beside the count.
    pub(crate) denials: Vec<Denials>,
    /// What the numbers of the given policy do not say about bans.
    pub(crate) bans: Vec<String>,
    /// The holds of a policy with holds.
    pub(crate) held: Option<OpenHolds>,
    /// What is held beside the count of a policy that was given without holds.
    pub(crate) beside: Option<Beside>,
}

/// Units that are charged, which may be more than the limit.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) units: u64,
    /// Whether more may be charged than can be known.
    or_more: bool,
}

impl Standing {
    pub(crate) async fn of(client: &Client, policy: &Policy) -> Result<Self, Failure> {
        let own = peek(client, &count_alone(policy)).await?;
        let (held, beside) = match policy.holds() {
            Some(_) => (Some(client.store.open_holds(&client.key, policy).await?), None),
            None => (None, Beside::of(client, policy).await?),
        };
        let denials = Denials::beside(client, policy).await?;
        let (count, bans) = match policy.holds() {
            Some(_) => (own, Vec::new()),
            None => with_bans(client, policy, own, &denials).await?,
        };
        let spent = Spent::of(client, policy, &count).await?;
        Ok(Self { policy: policy.clone(), count, spent, denials, bans, held, beside })
    }

    /// The largest cost that would pass now.
    pub(crate) fn available(&self) -> u64 {
        self.count.available.saturating_sub(self.held.unwrap_or_default().units)
    }

    /// Whether anything is spent, held or banned.
    pub(crate) fn is_counted(&self) -> bool {
        let held = self.held.unwrap_or_default().units > 0 || self.beside.as_ref().is_some_and(Beside::is_something);
        held || self.count.ban.is_some() || !self.count.reset.is_zero()
    }

    /// The error of holds that the service cannot read, beside a count that can be read.
    pub(crate) fn error(&self) -> Option<&tollgate::Error> {
        self.beside.as_ref().and_then(Beside::error)
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

impl Spent {
    async fn of(client: &Client, policy: &Policy, count: &PolicyDecision) -> Result<Option<Self>, Failure> {
        if count.ban.is_some() || policy.shards() > 1 || policy.window().is_none() {
            return Ok(None);
        }
        let within = Self { units: policy.capacity().saturating_sub(count.available), or_more: false };
        if count.available > 0 {
            return Ok(Some(within));
        }
        // A peek says what is left of the limit, and so how much is spent beyond it only under a larger limit.
        let widest = widest(policy).map_err(|error| error.to_string())?;
        let left = peek(client, &widest).await?.available;
        Ok(Some(Self { units: (widest.capacity() - left).max(within.units), or_more: left == 0 }))
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.units, if self.or_more { " or more" } else { "" })
    }
}

async fn peek(client: &Client, policy: &Policy) -> Result<PolicyDecision, Failure> {
    let decision = client.limiter.peek(&client.key, policy).await?;
    Ok(decision.policies().first().expect("a verdict has a standing for the policy of the check").clone())
}

/// The standing with the ban that ends last: one by hand, which the count itself (`own`) has; one by the numbers of the
/// given policy; or one by those of the service. Also returns what to say about them.
async fn with_bans(
    client: &Client,
    policy: &Policy,
    own: PolicyDecision,
    denials: &[Denials],
) -> Result<(PolicyDecision, Vec<String>), Failure> {
    let mut count = peek(client, policy).await?;
    // A ban by hand ends at the same time in each answer, so less is left of it in a later one.
    let (is_known, is_banned) = (denials.iter().any(|denials| denials.policy == *policy), count.ban > own.ban);
    let mut advice = Vec::new();
    for other in denials.iter().filter(|denials| denials.policy != *policy) {
        let found = peek(client, &other.policy).await?;
        match found.ban.filter(|_| found.ban > own.ban) {
            Some(left) => advice.push(other.of_a_ban(left)),
            None if is_banned && !is_known => advice.push(other.of_no_ban()),
            None => {}
        }
        if found.ban > count.ban {
            count = found;
        }
    }
    Ok((count, advice))
}
