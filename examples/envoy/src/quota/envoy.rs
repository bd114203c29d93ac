//! One stream: the buckets of an Envoy, and the answers to its reports.

use std::{collections::HashMap, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tokio::task::{JoinSet, yield_now};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tonic::Status;

use super::assignment::{Action, Assignment, Entries, TTL};
use super::bucket::{Bucket, Ended, MOST_BUCKETS, Next};
use super::grant::{Account, Grant};
use super::leftovers::{Leftovers, keep};
use super::meters::{QuotaMeters, Reason};
use super::{treatment::Treatment, trials::Trials};
use crate::{call::Judge, config::Config};

/// The most blocks that one stream asks for at once: few enough for the deadline of a call.
const MOST_ASKED: usize = 64;
/// How long a bucket may be without requests, and how long if more than a half of the places are taken.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// How long the first report may take, and a later one: several times what Envoys take. A stream without buckets has
/// nothing to report.
const SILENCE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3 * TTL.as_secs()));
const SILENCE_WITHOUT_BUCKETS: Duration = Duration::from_secs(300);

/// What all streams share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) judge: Arc<Judge>,
    pub(super) meters: QuotaMeters,
    pub(super) leftovers: Arc<Leftovers>,
}

#[derive(Debug)]
pub(super) struct Envoy {
    shared: Arc<Shared>,
    domain: String,
    /// The buckets that hold blocks, by their entries.
    buckets: HashMap<Entries, Bucket>,
    /// When the stream has begun, or has reported last.
    heard: Instant,
    trials: Arc<Trials>,
    /// Taken until all blocks have ended, so that streams which begin anew do not pile up.
    place: Arc<OwnedSemaphorePermit>,
}

/// A block to ask for, after the end of another one.
struct Ask {
    entries: Entries,
    account: Account,
    units: u64,
    /// Whether the stream has not shown yet that it lasts.
    is_new: bool,
    ended: Option<Ended>,
}

impl Envoy {
    pub(super) fn new(shared: Arc<Shared>, place: OwnedSemaphorePermit) -> Self {
        shared.meters.streams.increment(1);
        Self {
            shared,
            domain: String::new(),
            buckets: HashMap::new(),
            heard: Instant::now(),
            trials: Arc::default(),
            place: Arc::new(place),
        }
    }

    /// By when the next report has to come.
    pub(super) fn silent_at(&self) -> Instant {
        let longest = match (self.domain.is_empty(), self.buckets.is_empty()) {
            (true, _) => SILENCE.0,
            (false, true) => SILENCE_WITHOUT_BUCKETS,
            (false, false) => SILENCE.1,
        };
        self.heard + longest
    }

    /// When a bucket is to get units without a report.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.buckets.values().filter_map(Bucket::retry_at).min()
    }

    /// What a report is answered with. It has come after `arrived`.
    pub(super) async fn on_report(
        &mut self,
        report: RateLimitQuotaUsageReports,
        arrived: Instant,
    ) -> Result<Vec<Action>, Status> {
        self.enter(report.domain)?;
        self.heard = Instant::now();
        // A stream that goes on without a bucket may be of an Envoy that has another configuration now.
        let gone = self.buckets.extract_if(|_, bucket| bucket.reported().elapsed() > SILENCE.1);
        keep(gone.flat_map(|(_, bucket)| bucket.into_blocks()).collect(), &self.shared.leftovers, &self.place);
        let config = self.shared.config.load_full();
        let is_crowded = report.bucket_quota_usages.len() > MOST_BUCKETS;
        let (mut actions, mut asks) = (Vec::new(), Vec::new());
        for (number, usage) in report.bucket_quota_usages.into_iter().enumerate() {
            if number % MOST_ASKED == MOST_ASKED - 1 {
                yield_now().await;
            }
            let Some(entries) = entries(&usage) else {
                self.shared.meters.refuse(Reason::Entries);
                continue;
            };
            match Treatment::of(&config, &self.domain, &entries) {
                Treatment::Blocks(account) => {
                    if let Some(assignment) = self.on_usage((&usage, arrived), &entries, account, &mut asks) {
                        actions.push(Action { entries, assignment });
                    }
                }
                treatment => {
                    if let Some(bucket) = self.buckets.remove(&entries) {
                        keep(bucket.into_blocks().collect(), &self.shared.leftovers, &self.place);
                    }
                    let assignment = self.without_blocks(&usage, &entries, &treatment, is_crowded);
                    if let (Treatment::Pass(Some(account)), 1..) = (treatment, usage.num_requests_allowed) {
                        self.trials.add(&entries, account, usage.num_requests_allowed);
                    }
                    actions.push(Action { entries, assignment });
                }
            }
        }
        self.trials.count(&self.shared.judge, &self.place);
        actions.append(&mut self.ask(asks).await);
        Ok(actions)
    }

    /// Gives units to the buckets whose time has come.
    pub(super) async fn on_retry(&mut self) -> Vec<Action> {
        let (config, now) = (self.shared.config.load_full(), Instant::now());
        let (mut actions, mut asks) = (Vec::new(), Vec::new());
        for (entries, bucket) in &mut self.buckets {
            if bucket.retry_at().is_some_and(|due| due <= now)
                && let Next::Ask(units) = bucket.retry()
            {
                match Treatment::of(&config, &self.domain, entries) {
                    Treatment::Blocks(account) => {
                        let is_new = bucket.is_new();
                        asks.push(Ask { entries: entries.clone(), account, units, is_new, ended: None });
                    }
                    // The next report finds out why.
                    _ => {
                        let told = bucket.on_grant(Grant::Refused);
                        actions.extend(told.map(|assignment| Action { entries: entries.clone(), assignment }));
                    }
                }
            }
        }
        actions.append(&mut self.ask(asks).await);
        actions
    }

    /// Notes that these actions have left the process.
    pub(super) fn on_sent(&mut self, sent: &[Entries]) {
        for entries in sent {
            if let Some(bucket) = self.buckets.get_mut(entries) {
                bucket.on_sent();
            }
        }
    }

    /// Notes that the blocks of these buckets were too late to be sent. They are free again.
    pub(super) fn on_late(&mut self, late: &[Entries]) {
        for entries in late {
            if let Some(Ended { unused, .. }) = self.buckets.get_mut(entries).and_then(Bucket::on_late) {
                self.shared.meters.unused.increment(unused);
            }
        }
    }

    /// Checks the domain, which a stream keeps.
    fn enter(&mut self, domain: String) -> Result<(), Status> {
        if self.domain.is_empty() {
            if domain.is_empty() {
                return Err(Status::invalid_argument("the first report has no domain; set it in the filter"));
            }
            self.domain = domain;
        } else if !domain.is_empty() && domain != self.domain {
            return Err(Status::invalid_argument("the domain of a stream does not change; open another stream"));
        }
        if self.shared.config.load().has_domain(&self.domain) {
            return Ok(());
        }
        self.shared.judge.warnings.domain(&self.domain);
        Err(Status::not_found("no configuration has this domain; write one, or change that of the filter"))
    }

    /// The answer for a bucket with blocks, or nothing if the store is asked first or the last answer stays in force.
    fn on_usage(
        &mut self,
        (usage, arrived): (&BucketQuotaUsage, Instant),
        entries: &Entries,
        account: Account,
        asks: &mut Vec<Ask>,
    ) -> Option<Assignment> {
        let number = self.buckets.len();
        if !self.buckets.contains_key(entries) && number >= MOST_BUCKETS {
            return Some(self.refuse(usage, entries, Some(Reason::Full)));
        }
        let bucket = self.buckets.entry(entries.clone()).or_insert_with(Bucket::new);
        let ended = bucket.report(usage.num_requests_allowed, usage.num_requests_denied, arrived);
        if let Some(ended) = &ended {
            self.shared.meters.unused.increment(ended.unused);
        }
        match bucket.next(if number > MOST_BUCKETS / 2 { PATIENCE.1 } else { PATIENCE.0 }) {
            Next::Nothing => None,
            Next::Ask(units) => {
                let is_new = bucket.is_new();
                asks.push(Ask { entries: entries.clone(), account, units, is_new, ended });
                None
            }
            Next::Tell(assignment) => {
                if assignment == Assignment::Abandon {
                    self.buckets.remove(entries);
                }
                Some(assignment)
            }
        }
    }

    fn without_blocks(
        &self,
        usage: &BucketQuotaUsage,
        entries: &Entries,
        treatment: &Treatment,
        is_crowded: bool,
    ) -> Assignment {
        if let Treatment::Refuse(reason) = treatment {
            return self.refuse(usage, entries, *reason);
        }
        // Reports with all values that clients have ever sent would become too long.
        if is_crowded && is_idle(usage) { Assignment::Abandon } else { Assignment::AllowAll }
    }

    /// Refuses a bucket without an entry in the map. An Envoy without requests of it forgets it.
    fn refuse(&self, usage: &BucketQuotaUsage, entries: &Entries, reason: Option<Reason>) -> Assignment {
        if let Some(reason) = reason {
            self.shared.meters.refuse(reason);
            let keys = entries.iter().map(|(key, _)| key.as_str());
            self.shared.judge.warnings.bucket(&self.domain, keys, reason.advice());
        }
        if is_idle(usage) { Assignment::Abandon } else { Assignment::DenyAll }
    }

    /// Asks the store for blocks, many at once.
    async fn ask(&mut self, asks: Vec<Ask>) -> Vec<Action> {
        let (mut actions, mut asks) = (Vec::with_capacity(asks.len()), asks.into_iter());
        let mut running = JoinSet::new();
        loop {
            while running.len() < MOST_ASKED
                && let Some(Ask { entries, account, units, is_new, ended }) = asks.next()
            {
                let shared = Arc::clone(&self.shared);
                running.spawn(async move {
                    if let Some(Ended { settled, .. }) = ended {
                        // A settlement without an answer is sent again in the background.
                        drop(settled.await);
                    }
                    let leftover = if is_new { shared.leftovers.of(&account.key) } else { 0 };
                    (account.grant(&shared.judge, units, leftover).await, entries)
                });
            }
            let Some(result) = running.join_next().await else { return actions };
            // The task of a grant does not panic: it calls the limiter alone.
            let Ok((grant, entries)) = result else { continue };
            let Some(bucket) = self.buckets.get_mut(&entries) else { continue };
            if let Some(assignment) = bucket.on_grant(grant) {
                if let Assignment::Block { units, .. } = assignment {
                    self.shared.meters.blocks.increment(1);
                    self.shared.meters.units.increment(units);
                }
                actions.push(Action { entries, assignment });
            }
        }
    }
}

/// The blocks stay charged: the assignments of an Envoy whose stream has ended stay in force.
impl Drop for Envoy {
    fn drop(&mut self) {
        self.shared.meters.streams.decrement(1);
        let blocks = self.buckets.drain().flat_map(|(_, bucket)| bucket.into_blocks()).collect();
        keep(blocks, &self.shared.leftovers, &self.place);
    }
}

fn is_idle(usage: &BucketQuotaUsage) -> bool {
    usage.num_requests_allowed == 0 && usage.num_requests_denied == 0
}

/// The entries of a bucket, sorted; `None` without any, or if one is no UTF-8: no answer can name such a bucket.
fn entries(usage: &BucketQuotaUsage) -> Option<Entries> {
    let id = usage.bucket_id.as_ref().filter(|id| !id.bucket.is_empty())?;
    let mut entries: Entries = id.bucket.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    entries.sort();
    Some(entries)
}
