//! The streams of Envoys.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    RateLimitQuotaUsageReports, rate_limit_quota_service_server::RateLimitQuotaService,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::Stream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::answers::{self, Answers, Sender};
use super::envoy::{Envoy, Shared};
use super::{assignment::Action, leftovers::Leftovers, meters::QuotaMeters};
use crate::{call::Judge, config::Config};

/// The most streams.
const MOST_STREAMS: usize = 1_024;

#[derive(Debug)]
pub(crate) struct QuotaService {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl QuotaService {
    pub(crate) fn new(config: Arc<ArcSwap<Config>>, judge: Arc<Judge>, stopped: watch::Receiver<bool>) -> Self {
        let (meters, leftovers) = (QuotaMeters::new(), Arc::<Leftovers>::default());
        let shared = Arc::new(Shared { config, judge, meters, leftovers });
        Self { shared, places: Arc::new(Semaphore::new(MOST_STREAMS)), stopped }
    }
}

type Reports = Streaming<RateLimitQuotaUsageReports>;

#[tonic::async_trait]
impl RateLimitQuotaService for QuotaService {
    type StreamRateLimitQuotasStream = Answers;

    async fn stream_rate_limit_quotas(&self, request: Request<Reports>) -> Result<Response<Answers>, Status> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(Status::resource_exhausted("too many streams"));
        };
        let (sender, answers) = answers::channel(self.shared.meters.late.clone());
        let mut envoy = Envoy::new(Arc::clone(&self.shared), place);
        let mut stopped = self.stopped.clone();
        tokio::spawn(async move {
            let end = tokio::select! {
                () = async { drop(stopped.wait_for(|stopped| *stopped).await) } => Ok(()),
                end = serve(&mut envoy, request.into_inner(), &sender) => end,
            };
            // Before the Envoy sees the end, and opens another stream.
            drop(envoy);
            if let Err(status) = end {
                sender.end(status);
            }
        });
        Ok(Response::new(answers))
    }
}

/// Answers reports until the Envoy ends the stream, or does what it must not.
async fn serve(envoy: &mut Envoy, mut reports: Reports, answers: &Sender) -> Result<(), Status> {
    let mut sent = Vec::new();
    // The last report has come after this time. One that was here before an answer says nothing about it.
    let mut arrived = Instant::now();
    loop {
        // What a report says depends on what its Envoy was told.
        if answers.taken().await?.is_err() {
            return Ok(());
        }
        envoy.on_sent(&sent);
        envoy.on_late(&answers.late());
        let due = envoy.retry_at();
        let retry = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let mut has_waited = false;
        let next = poll_fn(|cx| {
            let report = Pin::new(&mut reports).poll_next(cx);
            has_waited |= report.is_pending();
            if has_waited {
                arrived = Instant::now();
            }
            report
        });
        let actions: Vec<Action> = tokio::select! {
            report = next => match report {
                Some(report) => envoy.on_report(report.map_err(refusal)?, arrived).await?,
                None => return Ok(()),
            },
            () = retry => envoy.on_retry().await,
            () = silence(envoy.silent_at()) => {
                return Err(Status::deadline_exceeded("no report for long; open another stream"));
            }
        };
        sent = actions.iter().map(|action| action.entries.clone()).collect();
        if answers.send(actions).await?.is_err() {
            return Ok(());
        }
    }
}

/// Waits until the Envoy has been silent for too long. After a pause of this process, reports may wait to be read, and
/// so the last second begins when the process goes on.
async fn silence(until: Instant) {
    sleep_until(until).await;
    sleep(Duration::from_secs(1)).await;
}

/// What a report that cannot be read is refused with.
fn refusal(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::out_of_range("the report is too long; use buckets with fewer values"),
        _ => status,
    }
}
