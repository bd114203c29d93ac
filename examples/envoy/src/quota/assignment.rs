//! Assignments: what an Envoy may do with the requests of a bucket, as the service sends it.

use std::time::Duration;

use envoy_types::pb::envoy::service::rate_limit_quota::v3::BucketId;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::rate_limit_quota_response::{
    BucketAction,
    bucket_action::{AbandonAction, BucketAction as Kind, QuotaAssignmentAction},
};
use envoy_types::pb::envoy::r#type::v3::rate_limit_strategy::{BlanketRule, Strategy};
use envoy_types::pb::envoy::r#type::v3::{RateLimitStrategy, TokenBucket};
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use tokio::time::Instant;

/// How long an assignment is in force. Envoy usually reports every five seconds, so a report may be lost.
pub(super) const TTL: Duration = Duration::from_secs(12);
/// How long the one unit of an idle Envoy is in force. It is sent once, so it costs no calls.
pub(super) const IDLE_TTL: Duration = Duration::from_secs(40);
/// How much longer a block counts than an Envoy may spend it, from before it is sent.
pub(super) const MARGIN: Duration = Duration::from_secs(4);

/// What an Envoy may do with the requests of a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Assignment {
    DenyAll,
    AllowAll,
    /// `units` requests within `ttl`. The store has held them since `made`.
    Block {
        units: u64,
        ttl: Duration,
        made: Instant,
    },
    /// To forget the bucket until its next request.
    Abandon,
}

/// An assignment of one bucket: its entries, sorted.
#[derive(Clone, Debug)]
pub(super) struct Action {
    pub(super) entries: Entries,
    pub(super) assignment: Assignment,
}

pub(super) type Entries = Vec<(String, String)>;

impl Action {
    /// Whether so much of the margin has passed that Envoy might spend the block after its hold.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.assignment, Assignment::Block { made, .. } if made.elapsed() > MARGIN / 2)
    }

    /// Adds the actions of Envoy. Envoy refills no bucket when it gets the same one again, so each block begins with a
    /// refusal of everything.
    pub(super) fn write(self, actions: &mut Vec<BucketAction>) {
        let id = BucketId { bucket: self.entries.into_iter().collect() };
        let deny = Strategy::BlanketRule(BlanketRule::DenyAll.into());
        match self.assignment {
            Assignment::DenyAll => actions.push(assign(id, deny, TTL)),
            Assignment::AllowAll => {
                actions.push(assign(id, Strategy::BlanketRule(BlanketRule::AllowAll.into()), TTL));
            }
            Assignment::Block { units, ttl, .. } => {
                let block = TokenBucket {
                    max_tokens: u32::try_from(units).unwrap_or(u32::MAX),
                    // One more in an hour, which no assignment lives to see.
                    tokens_per_fill: Some(UInt32Value { value: 1 }),
                    fill_interval: Some(protobuf::Duration { seconds: 3_600, nanos: 0 }),
                };
                actions.push(assign(id.clone(), deny, ttl));
                actions.push(assign(id, Strategy::TokenBucket(block), ttl));
            }
            Assignment::Abandon => {
                let kind = Kind::AbandonAction(AbandonAction {});
                actions.push(BucketAction { bucket_id: Some(id), bucket_action: Some(kind) });
            }
        }
    }
}

fn assign(id: BucketId, strategy: Strategy, ttl: Duration) -> BucketAction {
    let ttl = protobuf::Duration { seconds: ttl.as_secs().cast_signed(), nanos: 0 };
    let assignment = QuotaAssignmentAction {
        assignment_time_to_live: Some(ttl),
        rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
    };
    BucketAction { bucket_id: Some(id), bucket_action: Some(Kind::QuotaAssignmentAction(assignment)) }
}
