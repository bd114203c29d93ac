//! The answer to a call.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::{config::core::v3::HeaderValue, service::ratelimit::v3::RateLimitResponse};
use envoy_types::pb::google::protobuf;
use http::HeaderMap;
use tollgate::{decision::PolicyDecision, headers::HeaderWriter};

use super::judge::Judged;
use super::plan::{Ask, Charged, Kind, Part, Plan};
use crate::{config::rule::Limit, meters::Outcome};

/// Writes answers.
#[derive(Debug)]
pub(crate) struct Replies {
    /// Writes the fields that Envoy adds to its response.
    pub(crate) fields: HeaderWriter,
}

impl Replies {
    /// The answer; `None` if Envoy has to decide.
    pub(crate) fn reply(&self, plan: &Plan, judged: &Judged) -> Option<RateLimitResponse> {
        let (allowed, standings, decision) = match judged {
            Judged::Decided { allowed, standings, decision } => (*allowed, &standings[..], decision.as_ref()),
            Judged::Open => (true, &[][..], None),
            Judged::Refused => (false, &[][..], None),
            Judged::Unavailable => {
                plan.parts.iter().for_each(|part| count(part, Outcome::Unanswered));
                return None;
            }
        };
        let is_answered = decision.is_some();
        let mut statuses = Vec::with_capacity(plan.parts.len());
        let mut metadata = None;
        for part in &plan.parts {
            let status = match &part.ask {
                Ask::Nothing | Ask::Settle { .. } | Ask::Credit { .. } => free(0),
                Ask::Unlimited => free(u32::MAX),
                Ask::Refuse { is_shadow: true, .. } => {
                    count(part, Outcome::WouldBeOver);
                    free(0)
                }
                Ask::Refuse { limit, .. } => {
                    count(part, Outcome::OverLimit);
                    of_limit(limit, Code::OverLimit, None)
                }
                Ask::Charge { number, .. } | Ask::Hold { number, .. } => {
                    let Charged { limit, kind, .. } = &plan.charges[*number];
                    let standing = standings.get(*number).and_then(Option::as_ref);
                    let is_short = standing.is_some_and(|standing| standing.violated || standing.would_deny);
                    let is_over = match kind {
                        Kind::Shadow => false,
                        Kind::Enforced | Kind::Quota => is_short || !is_answered && !allowed,
                    };
                    count(part, outcome(*kind, is_short, is_over, is_answered));
                    if *kind == Kind::Quota && standing.is_some() && !is_short && metadata.is_none() {
                        metadata = part.rule.as_ref().and_then(|rule| rule.metadata.clone());
                    }
                    of_limit(limit, if is_over { Code::OverLimit } else { Code::Ok }, standing)
                }
            };
            statuses.push(status);
        }
        let mut fields = HeaderMap::new();
        if let Some(decision) = decision {
            self.fields.write(decision, &mut fields);
        }
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| HeaderValue {
            key: name.to_string(),
            value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
            raw_value: Vec::new(),
        };
        Some(RateLimitResponse {
            overall_code: if allowed { Code::Ok } else { Code::OverLimit }.into(),
            statuses,
            response_headers_to_add: fields.iter().map(field).collect(),
            dynamic_metadata: metadata.filter(|_| allowed),
            ..RateLimitResponse::default()
        })
    }
}

fn outcome(kind: Kind, is_short: bool, is_over: bool, is_answered: bool) -> Outcome {
    match kind {
        _ if !is_answered => Outcome::Unanswered,
        Kind::Shadow if is_short => Outcome::WouldBeOver,
        _ if is_over => Outcome::OverLimit,
        _ => Outcome::Ok,
    }
}

fn count(part: &Part, outcome: Outcome) {
    if let Some(rule) = &part.rule {
        rule.meters.count(outcome, part.detail.as_deref());
    }
}

/// The status of a descriptor that nothing limits.
fn free(limit_remaining: u32) -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..DescriptorStatus::default() }
}

/// The status of a descriptor that a rule limits. The time until reset is that until the same call passes, or until all
/// units are back.
fn of_limit(limit: &Limit, code: Code, standing: Option<&PolicyDecision>) -> DescriptorStatus {
    let reset = standing.map(|standing| standing.retry_after.unwrap_or(standing.reset));
    DescriptorStatus {
        code: code.into(),
        // Envoy makes no fields of a limit without a verdict.
        current_limit: (standing.is_some() || code == Code::OverLimit).then(|| limit.shown.clone()),
        limit_remaining: standing.map_or(0, |standing| u32::try_from(standing.available).unwrap_or(u32::MAX)),
        duration_until_reset: reset.map(whole_seconds),
        quota: None,
    }
}

/// Whole seconds, rounded up, at most those of a `u32`: Envoy drops a fraction, and clients would be early.
fn whole_seconds(duration: Duration) -> protobuf::Duration {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    protobuf::Duration { seconds: u32::try_from(seconds).unwrap_or(u32::MAX).into(), nanos: 0 }
}
