//! Bans after denials. No header of a response has their numbers, so an operator may not know them. The program looks
//! for the denials of the client whatever `--policy` says of bans.

use std::time::Duration;

use tollgate::Policy;

use crate::time::{exact, rounded};
use crate::{Failure, commands::Client, number::number};

/// Denials of the client that are counted beside its count.
pub(crate) struct Denials {
    /// The given policy with the numbers of the service.
    pub(crate) policy: Policy,
    number: u32,
    duration: Duration,
}

impl Denials {
    /// The denials that are counted under `policy`, for bans of each usual duration.
    pub(crate) async fn beside(client: &Client, policy: &Policy) -> Result<Vec<Self>, Failure> {
        // Neither shards nor holds go together with such a ban.
        if policy.shards() > 1 || policy.holds().is_some() {
            return Ok(Vec::new());
        }
        let found = client.store.ban_settings(&client.key, policy, &durations()).await?;
        let denials = found.into_iter().map(|(number, duration)| {
            let policy = policy.clone().ban_after(number, duration).validated().map_err(|error| error.to_string())?;
            Ok(Self { policy, number, duration })
        });
        denials.collect()
    }

    /// The advice on a ban that lasts for `left`, and of which the given policy does not say what it is.
    pub(crate) fn of_a_ban(&self, left: Duration) -> String {
        format!(
            "{}: the client is banned for {} more, after {}; the policy as given does not say so: write {}; reset and \
             unban end this ban all the same",
            self.policy.name(),
            rounded(left),
            self.denials(),
            self.words(),
        )
    }

    /// The advice on a ban that only the numbers of the given policy make.
    pub(crate) fn of_no_ban(&self) -> String {
        format!(
            "{}: the service bans after {} for {}, and fewer are counted: write {}, with which there is no ban",
            self.policy.name(),
            self.denials(),
            exact(self.duration),
            self.words(),
        )
    }

    fn denials(&self) -> String {
        number(self.number.into(), "denial")
    }

    /// The words of `--policy`.
    fn words(&self) -> String {
        format!(",ban-after={}/{}", self.number, exact(self.duration))
    }
}

/// The durations of bans that are looked for: each second up to ten minutes, then every five seconds up to an hour,
/// every minute up to a day, every hour up to a month, and every day.
fn durations() -> Vec<Duration> {
    const DAY: u64 = 86_400;
    let mut durations = Vec::new();
    let mut reached = 0;
    for (step, last) in [(1, 600), (5, 3_600), (60, DAY), (3_600, 31 * DAY), (DAY, Policy::MAX_WINDOW.as_secs())] {
        while reached + step <= last {
            reached += step;
            durations.push(Duration::from_secs(reached));
        }
    }
    durations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_durations_are_looked_for_and_not_too_many() {
        let durations = durations();
        for seconds in [1, 30, 90, 127, 600, 900, 1_000, 3_600, 5_400, 86_400, 36 * 3_600, 7 * 86_400, 366 * 86_400] {
            assert!(durations.contains(&Duration::from_secs(seconds)), "{seconds}");
        }
        assert!(durations.len() < 4_000 && durations.is_sorted(), "{}", durations.len());
    }
}
