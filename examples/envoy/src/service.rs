//! The rate limit service: `ShouldRateLimit`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response::Code, rate_limit_service_server::RateLimitService,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::call::{Judge, Plan, Replies};
use crate::config::Config;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: Arc<ArcSwap<Config>>,
    pub(crate) judge: Arc<Judge>,
    pub(crate) replies: Replies,
    /// Calls that may be judged at once.
    pub(crate) places: Semaphore,
}

impl Service {
    /// The most calls that are judged at once: with a deadline of 15 ms, a million calls a second.
    pub(crate) const MOST_CALLS: usize = 16_384;
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let meters = &self.judge.meters;
        let Ok(_place) = self.places.try_acquire() else {
            meters.calls_unavailable.increment(1);
            return Err(Status::resource_exhausted("too many calls at once"));
        };
        // A call is judged by one version of the configuration.
        let config = self.config.load_full();
        let plan = Plan::new(&config, request.get_ref()).inspect_err(|_| meters.calls_invalid.increment(1))?;
        if !config.has_domain(&request.get_ref().domain) {
            self.judge.warnings.unlimited(&request.get_ref().domain);
        }
        meters.unmatched.increment(plan.parts.iter().filter(|part| part.rule.is_none()).count() as u64);
        let judged = self.judge.judge(&plan).await;
        match self.replies.reply(&plan, &judged) {
            Some(reply) => {
                let is_ok = reply.overall_code == i32::from(Code::Ok);
                if is_ok { &meters.calls_ok } else { &meters.calls_over_limit }.increment(1);
                Ok(Response::new(reply))
            }
            None => {
                meters.calls_unavailable.increment(1);
                Err(Status::unavailable("the store has given no verdict"))
            }
        }
    }
}
