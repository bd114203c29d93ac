//! The methods of both services. They read messages by [`codec`], because Envoy sends what clients have sent.

mod codec;
mod messages;

use std::task::{Context, Poll};
use std::{convert::Infallible, sync::Arc};

use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_service_server::{RateLimitQuotaService, SERVICE_NAME as QUOTAS},
};
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_service_server::{RateLimitService, SERVICE_NAME as CALLS},
};
use tonic::codegen::{BoxFuture, Service as TowerService};
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming, body::Body};

use self::codec::AnyText;
use crate::quota::{Answers, QuotaService};
use crate::service::Service;

/// The longest call, and the longest report. An Envoy reports all values that clients have sent since the last answer,
/// which has it forget them. So a report that is refused comes again and again.
const LONGEST_CALL: usize = 2 << 20;
const LONGEST_REPORT: usize = 16 << 20;

/// The rate limit service as the server runs it.
#[derive(Clone, Debug)]
pub(crate) struct Calls(pub(crate) Arc<Service>);

/// The quota service as the server runs it.
#[derive(Clone, Debug)]
pub(crate) struct Quotas(pub(crate) Arc<QuotaService>);

impl NamedService for Calls {
    const NAME: &'static str = CALLS;
}

impl NamedService for Quotas {
    const NAME: &'static str = QUOTAS;
}

/// Whether a request calls this method of its service.
fn calls(request: &http::Request<Body>, method: &str) -> bool {
    request.uri().path().rsplit('/').next() == Some(method)
}

fn unimplemented() -> http::Response<Body> {
    Status::unimplemented("the service has no such method").into_http()
}

impl TowerService<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = ShouldRateLimit(Arc::clone(&self.0));
        Box::pin(async move {
            if !calls(&request, "ShouldRateLimit") {
                return Ok(unimplemented());
            }
            let codec = AnyText::<RateLimitResponse, RateLimitRequest>::default();
            Ok(Grpc::new(codec).max_decoding_message_size(LONGEST_CALL).unary(service, request).await)
        })
    }
}

impl TowerService<http::Request<Body>> for Quotas {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = StreamRateLimitQuotas(Arc::clone(&self.0));
        Box::pin(async move {
            if !calls(&request, "StreamRateLimitQuotas") {
                return Ok(unimplemented());
            }
            let codec = AnyText::<RateLimitQuotaResponse, RateLimitQuotaUsageReports>::default();
            Ok(Grpc::new(codec).max_decoding_message_size(LONGEST_REPORT).streaming(service, request).await)
        })
    }
}

struct ShouldRateLimit(Arc<Service>);

impl UnaryService<RateLimitRequest> for ShouldRateLimit {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move { service.should_rate_limit(request).await })
    }
}

struct StreamRateLimitQuotas(Arc<QuotaService>);

impl StreamingService<RateLimitQuotaUsageReports> for StreamRateLimitQuotas {
    type Response = RateLimitQuotaResponse;
    type ResponseStream = Answers;
    type Future = BoxFuture<Response<Answers>, Status>;

    fn call(&mut self, request: Request<Streaming<RateLimitQuotaUsageReports>>) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move { service.stream_rate_limit_quotas(request).await })
    }
}
