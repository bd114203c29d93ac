//! The limits of a key, of its team and of its organisation.

use axum::http::{StatusCode, request, response};
use tollgate::policy::{FirstOf, HoldSettings};
use tollgate::{
    Calendar, ConfigError, ExtensionKey, HeaderStyle, Key, Limiter, Policy, RateLimitLayer, headers::HeaderWriter,
    middleware::Settlement,
};

use crate::account::{KeyName, Organisation, Team};
use crate::{chat::Chat, options::Options, proxy::BrokenOff};

/// The policies whose cost is tokens.
const OF_TOKENS: [&str; 4] = ["key-tokens", "team-tokens", "included", "credits"];

#[derive(Clone)]
pub(crate) struct Limits {
    of_key: [Policy; 3],
    of_team: Policy,
    /// The included tokens, then the credits.
    of_organisation: [Policy; 2],
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Result<Self, ConfigError> {
        // Of a killed process, tokens are charged as held after this time, and streams are free. Requests that live are
        // renewed.
        let holds = HoldSettings::new().with_ttl(options.hold_ttl);
        let tokens = |policy: Policy| policy.with_unit("tokens").with_holds(holds);
        Ok(Self {
            of_key: [
                Policy::per_minute("requests", 600)?,
                tokens(Policy::per_minute("key-tokens", 50_000)?),
                Policy::concurrent("streams", 100)?.with_holds(holds),
            ],
            of_team: tokens(Policy::per_day("team-tokens", 1_000_000)?),
            of_organisation: [
                tokens(Policy::calendar("included", options.included, Calendar::monthly())?),
                tokens(Policy::calendar("credits", options.credits, Calendar::yearly())?),
            ],
        })
    }

    /// One check of all limits: a request passes all of them, or takes nothing from any. Of the organisation's two, the
    /// first that has room pays for the whole request.
    pub(crate) fn layer(
        &self,
        limiter: Limiter,
        options: &Options,
    ) -> Result<RateLimitLayer<ExtensionKey<KeyName>>, ConfigError> {
        let charge_afterwards = options.charge_afterwards;
        let estimate = move |request: &request::Parts| match request.extensions.get::<Chat>() {
            Some(_) if charge_afterwards => 1,
            Some(chat) => chat.estimate(),
            // A cost above every limit, which is refused.
            None => u64::MAX,
        };
        let layer = RateLimitLayer::new(limiter, self.of_key.clone(), ExtensionKey::<KeyName>::new())
            .and(self.of_team.clone(), ExtensionKey::<Team>::new())
            .and(FirstOf::new(self.of_organisation.clone()), ExtensionKey::<Organisation>::new());
        OF_TOKENS
            .iter()
            .fold(layer, |layer, policy| layer.with_cost_of_fn(policy, estimate))
            .with_settlement(|response: &response::Parts| match response.status {
                // Charges what is on the bill when the answer has ended, by whatever end.
                StatusCode::OK => Settlement::AtEnd,
                // The estimate, because it is unknown how much the model has written.
                _ if response.extensions.get::<BrokenOff>().is_some() => Settlement::Held,
                // The upstream has begun no answer.
                _ => Settlement::Nothing,
            })
            // The fields that SDKs of this API read, and waits in milliseconds.
            .with_headers(HeaderWriter::new(HeaderStyle::OpenAi).with_retry_after_ms(true))
            .fail_closed()
            .validated()
    }

    /// All policies, each with who pays and the key.
    pub(crate) fn of_account(
        &self,
        (name, team, organisation): (KeyName, Team, Organisation),
    ) -> impl Iterator<Item = (&'static str, Key, &Policy)> {
        let of_key = self.of_key.iter().map(move |policy| ("key", Key::from(&name), policy));
        let of_organisation =
            self.of_organisation.iter().map(move |policy| ("organisation", Key::from(&organisation), policy));
        of_key.chain([("team", Key::from(&team), &self.of_team)]).chain(of_organisation)
    }
}
