//! A service in this process, and calls of it.
#![allow(dead_code, missing_debug_implementations, unreachable_pub, clippy::unwrap_used)]

#[path = "../../../../tests/server/support/link.rs"]
pub mod link;
#[path = "../../../../tests/server/support/ports.rs"]
pub mod ports;
pub mod program;
pub mod quotas;
pub mod raw;
#[path = "../../../../tests/server/support/redis_server.rs"]
pub mod redis_server;

use std::{net::SocketAddr, time::Duration};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use envoy_types::pb::google::protobuf::UInt64Value;
use redis_server::Directory;
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};
use tollgate_envoy::{Options, Server};
use tonic::{Status, transport::Channel};

/// A running service. It stops when this value is dropped.
pub struct Service {
    pub address: SocketAddr,
    pub client: RateLimitServiceClient<Channel>,
    pub folder: Directory,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Service {
    /// Starts a service with this configuration, in memory.
    pub async fn start(yaml: &str) -> Self {
        Self::start_with(yaml, |_| {}).await
    }

    pub async fn start_with(yaml: &str, change: impl FnOnce(&mut Options)) -> Self {
        let folder = Directory::new();
        let mut options = Options::new(folder.write("limits.yaml", yaml));
        options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        // Tests are about deadlines only where they say so.
        options.deadline = Duration::from_secs(10);
        change(&mut options);
        let server = Server::bind(&options).await.unwrap_or_else(|error| panic!("{error}"));
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move { server.run(async { drop(stopped.await) }).await.unwrap() });
        let client = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
        Self { address, client, folder, stop: Some(stop), running }
    }

    pub async fn try_call(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(self.client.clone().should_rate_limit(request).await?.into_inner())
    }

    pub async fn reply(&self, descriptors: impl Into<Vec<RateLimitDescriptor>>) -> RateLimitResponse {
        self.try_call(request("test", descriptors)).await.unwrap()
    }

    /// Whether a call with these descriptors passes.
    pub async fn passes(&self, descriptors: impl Into<Vec<RateLimitDescriptor>>) -> bool {
        passed(&self.reply(descriptors).await)
    }

    /// How many of `calls` calls pass.
    pub async fn passed(&self, calls: usize, descriptor: RateLimitDescriptor) -> usize {
        let mut passed = 0;
        for _ in 0..calls {
            passed += usize::from(self.passes([descriptor.clone()]).await);
        }
        passed
    }

    /// The units left, by a question that charges nothing.
    pub async fn left(&self, descriptor: RateLimitDescriptor) -> u32 {
        self.reply([descriptor.hits(0)]).await.statuses[0].limit_remaining
    }

    /// Polls until a call with this descriptor has this result.
    pub async fn until(&self, what: &str, mut reached: impl AsyncFnMut(&Self) -> bool) {
        let start = Instant::now();
        while !reached(self).await {
            assert!(start.elapsed() < Duration::from_secs(30), "timed out waiting until {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the service, and waits until it has ended.
    pub async fn stop(mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.running.await.unwrap();
    }
}

pub fn request(domain: &str, descriptors: impl Into<Vec<RateLimitDescriptor>>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.into(), hits_addend: 0 }
}

pub fn passed(reply: &RateLimitResponse) -> bool {
    reply.overall_code == i32::from(Code::Ok)
}

/// The codes of the statuses: whether each is OK.
pub fn oks(reply: &RateLimitResponse) -> Vec<bool> {
    reply.statuses.iter().map(|status| status.code == i32::from(Code::Ok)).collect()
}

/// A descriptor with these entries.
pub fn entries<const N: usize>(entries: [(&str, &str); N]) -> RateLimitDescriptor {
    let entry = |(key, value): (&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: entries.map(entry).to_vec(), ..RateLimitDescriptor::default() }
}

pub trait Descriptor {
    fn hits(self, hits: u64) -> Self;
    fn back(self, hits: u64) -> Self;
    fn limit(self, requests_per_unit: u32, unit: i32) -> Self;
}

impl Descriptor for RateLimitDescriptor {
    fn hits(self, hits: u64) -> Self {
        Self { hits_addend: Some(UInt64Value { value: hits }), ..self }
    }

    fn back(self, hits: u64) -> Self {
        Self { is_negative_hits: true, ..self.hits(hits) }
    }

    fn limit(self, requests_per_unit: u32, unit: i32) -> Self {
        Self { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..self }
    }
}

/// The value of a field that Envoy adds to its response.
pub fn field<'a>(reply: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    reply.response_headers_to_add.iter().find(|field| field.key == name).map(|field| field.value.as_str())
}

/// A domain `test` with these descriptors, each as a line of YAML.
pub fn domain(descriptors: &[&str]) -> String {
    let lines = descriptors.iter().map(|descriptor| format!("  - {descriptor}\n"));
    format!("domain: test\ndescriptors:\n{}", lines.collect::<String>())
}

/// Prints a line although the test harness captures `println`.
pub fn print_line(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
