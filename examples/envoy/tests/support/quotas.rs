//! Streams of the quota service, as an Envoy has them.

use std::{collections::BTreeMap, time::Duration};

use envoy_types::pb::envoy::{
    service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
        rate_limit_quota_response::bucket_action::BucketAction,
        rate_limit_quota_service_client::RateLimitQuotaServiceClient, rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
    r#type::v3::rate_limit_strategy::{BlanketRule, Strategy},
};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// After this time, the service takes it that its last answer has arrived.
pub const ARRIVAL: Duration = Duration::from_millis(1_100);

/// The answer about a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    DenyAll,
    AllowAll,
    /// A number of requests, after a refusal of everything.
    Block(u32),
    Abandon,
}

pub struct Quotas {
    reports: mpsc::UnboundedSender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
}

/// Requests of a bucket: allowed and denied ones.
pub type Usage<'a> = (&'a [(&'a str, &'a str)], u64, u64);

impl Quotas {
    pub async fn open(address: impl std::fmt::Display) -> Self {
        Self::open_on(Endpoint::from_shared(format!("http://{address}")).unwrap()).await
    }

    pub async fn open_on(endpoint: Endpoint) -> Self {
        let channel: Channel = endpoint.connect().await.unwrap();
        let (reports, receiver) = mpsc::unbounded_channel();
        let mut client = RateLimitQuotaServiceClient::new(channel).max_decoding_message_size(64 << 20);
        let answers = client.stream_rate_limit_quotas(UnboundedReceiverStream::new(receiver)).await.unwrap();
        Self { reports, answers: answers.into_inner() }
    }

    pub fn send(&self, domain: &str, usages: &[Usage<'_>]) {
        let usage = |(bucket, allowed, denied): &Usage<'_>| BucketQuotaUsage {
            bucket_id: Some(BucketId {
                bucket: bucket.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            }),
            num_requests_allowed: *allowed,
            num_requests_denied: *denied,
            ..BucketQuotaUsage::default()
        };
        let bucket_quota_usages = usages.iter().map(usage).collect();
        let _ = self.reports.send(RateLimitQuotaUsageReports { domain: domain.to_owned(), bucket_quota_usages });
    }

    /// The next answer: what is said about each bucket, by its entries.
    pub async fn answer(&mut self) -> Result<BTreeMap<String, Told>, Status> {
        let answer = timeout(Duration::from_secs(30), self.answers.message()).await.expect("no answer within 30 s")?;
        Ok(told(answer.ok_or_else(|| Status::ok("the stream has ended"))?))
    }

    /// Reports requests of a tenant, and returns the answer.
    pub async fn tenant(&mut self, tenant: &str, allowed: u64, denied: u64) -> Told {
        self.send("test", &[(&[("tenant", tenant)], allowed, denied)]);
        self.answer().await.unwrap()[&format!("tenant={tenant}")]
    }

    /// Reports requests, and expects no answer.
    pub async fn tenant_silently(&mut self, tenant: &str, allowed: u64, denied: u64) {
        self.send("test", &[(&[("tenant", tenant)], allowed, denied)]);
        let answer = timeout(Duration::from_millis(300), self.answers.message()).await;
        assert!(answer.is_err(), "{answer:?}");
    }

    /// The last thing that is said about a bucket in the answers that have come.
    pub async fn newest(&mut self, bucket: &str) -> Option<Told> {
        let mut newest = None;
        while let Ok(answer) = timeout(Duration::from_millis(50), self.answers.message()).await {
            newest = told(answer.unwrap().unwrap()).get(bucket).copied().or(newest);
        }
        newest
    }

    /// Ends the stream, and waits until the service has ended it too.
    pub async fn close(self) {
        let Self { reports, mut answers } = self;
        drop(reports);
        while let Ok(Some(_)) = answers.message().await {}
    }

    /// The status with which the service ends the stream.
    pub async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.answer().await {
                return status;
            }
        }
    }
}

/// Waits until a report shows that the last answer has arrived.
pub async fn arrival() {
    sleep(ARRIVAL).await;
}

fn told(response: RateLimitQuotaResponse) -> BTreeMap<String, Told> {
    let mut all = BTreeMap::new();
    for action in response.bucket_action {
        let mut entries: Vec<_> =
            action.bucket_id.unwrap().bucket.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        entries.sort();
        let entries = entries.join(",");
        let told = match action.bucket_action.unwrap() {
            BucketAction::AbandonAction(_) => Told::Abandon,
            BucketAction::QuotaAssignmentAction(action) => {
                let ttl = action.assignment_time_to_live.unwrap().seconds;
                match action.rate_limit_strategy.unwrap().strategy.unwrap() {
                    Strategy::BlanketRule(rule) if rule == i32::from(BlanketRule::AllowAll) => Told::AllowAll,
                    Strategy::BlanketRule(_) => Told::DenyAll,
                    Strategy::TokenBucket(block) => {
                        assert_eq!(all.get(&entries), Some(&Told::DenyAll), "Envoy refills no bucket by itself");
                        assert!(ttl == 12 || (block.max_tokens == 1 && ttl == 40), "{ttl}");
                        assert!(block.fill_interval.unwrap().seconds >= 3_600);
                        Told::Block(block.max_tokens)
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        all.insert(entries, told);
    }
    all
}
