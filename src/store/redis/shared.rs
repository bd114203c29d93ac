//! What the clones of a store share, and the way of a check through it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use smallvec::SmallVec;
use tokio::runtime::{self, Handle};

use super::{
    batch::{self, Batcher},
    connection::Connection,
    error,
    eviction::{self, Eviction},
    heartbeat::{self, Heartbeat},
    pool::{Pool, Source},
    progress::Progress,
    protocol::{self, Request, Step},
    script::{self, Loader},
    seal::Seal,
};
#[cfg(feature = "cluster")]
use super::{parts, slots};
use crate::{
    breaker::Breaker,
    check::Check,
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind, StoreEvidence},
    key::Key,
    observe::{BatchSpan, ObserverCell, Once, Warning},
    runtime::{deadline::within, drivers::Driver},
    store::deny_cache::{DenyCache, KeyGroup},
    verdict::Verdict,
};

/// What the clones of a store have in common.
pub(super) struct Shared {
    pub(super) source: Source,
    /// In a box: each check locks it, and what lies beside it is only read.
    pub(super) links: Box<Links>,
    pub(super) loader: Loader,
    pub(super) batching: bool,
    pub(super) deny_cache: Option<DenyCache>,
    pub(super) breaker: Option<Breaker>,
    pub(super) heartbeat: Heartbeat,
    pub(super) seal: Seal,
    /// Whether a key was hashed without a secret, and whether that has been said.
    pub(super) guessable: AtomicBool,
    pub(super) warned: Once,
    pub(super) eviction: Eviction,
    pub(super) prefix: Box<str>,
    pub(super) deadline: Duration,
    pub(super) first_dial_deadline: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) latest_us: AtomicU64,
    /// Until when scripts are given the time, for the server has not let one ask for it.
    pub(super) time_forbidden_until_us: AtomicU64,
    pub(super) observer: ObserverCell,
}

/// By runtime.
type Links = Mutex<VecDeque<(runtime::Id, Arc<Link>)>>;

/// What lives and dies with a runtime: connections are driven by its tasks, and so are batches.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) pool: Pool,
    pub(super) batcher: Batcher,
}

/// Runtimes at the same time: a thread may have one each. Beyond that, as in tests that make one after the other, what
/// the oldest had is given up.
const MAX_LINKS: usize = 256;

impl Shared {
    /// Asks Redis, and remembers a denial. A peek that shows room ends the remembered denials of its key.
    pub(super) async fn judge(self: Arc<Self>, check: Check, progress: Arc<Progress>) -> Result<Verdict, Error> {
        let concerns = self.deny_cache.as_ref().map(|cache| cache.concerns(&check)).unwrap_or_default();
        let verdict = Arc::clone(&self).send(check, progress).await?;
        if let Some(cache) = &self.deny_cache {
            cache.learn(&concerns, &verdict);
        }
        heartbeat::touch(&self);
        eviction::touch(&self);
        Ok(verdict)
    }

    async fn send(self: Arc<Self>, mut check: Check, progress: Arc<Progress>) -> Result<Verdict, Error> {
        // Denials are remembered by the keys as they are here.
        let original = self.deny_cache.as_ref().map(|cache| {
            let (epoch, denials, sent_us) = (cache.epoch(&check), cache.denials(), self.local_now_us());
            // In a box, because it is moved about with its request and hardly ever looked at.
            Box::new(Original { check: check.clone(), epoch, denials, sent_us })
        });
        if self.seal.seal(&mut check) && !self.seal.has_secret() && !self.guessable.load(Ordering::Relaxed) {
            self.guessable.store(true, Ordering::Relaxed);
        }
        #[cfg(feature = "cluster")]
        if self.source.is_cluster() {
            return self.send_by_slots(check, original, progress).await;
        }
        self.request(batch::WHOLE, Request { check, step: Step::Pay, progress }, original).await
    }

    /// One step with a check, whose keys are all in `slot`. With the `original`, a denial is remembered.
    pub(super) async fn request(
        self: Arc<Self>,
        slot: u16,
        request: Request,
        original: Option<Box<Original>>,
    ) -> Result<Verdict, Error> {
        if self.batching {
            return batch::submit(self, slot, request, original).await;
        }
        // In a box, or every check that is batched would carry it.
        let verdict = Box::pin(async {
            let link = self.link()?;
            self.first_connection(&link, &[slot], &request.progress).await?;
            let connection = self.connect(&link, slot).await?;
            self.call(connection, std::iter::once(&request)).await?.swap_remove(0)
        });
        let verdict = verdict.await?;
        if let Some(original) = original {
            self.remember(&original, &verdict);
        }
        Ok(verdict)
    }

    /// Remembers a verdict, if it is a denial that is sure to hold for a while.
    pub(super) fn remember(&self, original: &Original, verdict: &Verdict) {
        if let Some(cache) = &self.deny_cache {
            cache.put(&original.check, verdict, original.epoch, original.sent_us, self.local_now_us());
        }
    }

    /// A denial that was remembered after the check was made.
    pub(super) fn denied_since(&self, original: &Original) -> Option<Verdict> {
        let cache = self.deny_cache.as_ref().filter(|cache| cache.denials() != original.denials)?;
        let now_us = self.local_now_us();
        cache.get(&original.check, now_us, self.latest_us(now_us))
    }

    /// A connection to the server that has a slot, or an error as soon as there is none to be had.
    pub(super) async fn connect(&self, link: &Link, slot: u16) -> Result<Connection, Error> {
        let late =
            || Err(Error::new(ErrorKind::Unavailable, "no connection in time").with_evidence(StoreEvidence::Late));
        let result = within(self.deadline, link.pool.get(slot)).await.unwrap_or_else(late);
        result.inspect_err(|_| self.forget_denials())
    }

    /// How many parts may be away by themselves.
    pub(super) fn parts(&self) -> usize {
        #[cfg(feature = "cluster")]
        if self.source.is_cluster() {
            return parts::PARTS;
        }
        1
    }

    /// Whether a check may have to ask several masters.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all keys"))]
    pub(super) fn has_parts(&self, check: &Check) -> bool {
        #[cfg(feature = "cluster")]
        if self.source.is_cluster() {
            let mut keys = check.charges().iter().map(|charge| &charge.key);
            let first = keys.next();
            return keys.any(|key| Some(key) != first);
        }
        false
    }

    /// The slot of a key of Redis' whose hash tag is `tag`.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all slots"))]
    pub(super) fn slot_of(&self, tag: &[u8]) -> u16 {
        #[cfg(feature = "cluster")]
        if self.source.is_cluster() {
            return slots::slot_of(tag);
        }
        batch::WHOLE
    }

    /// What an error means for the connection that gave it.
    pub(super) fn failed(&self, connection: &Connection, error: &redis::RedisError) -> Error {
        if error::breaks_connection(error) {
            connection.mark_broken();
            self.forget_denials();
        }
        error::convert(error, &self.source.passwords())
    }

    /// Forgets what Redis may have lost. On a cluster denials are remembered for a second at most and kept: one master
    /// that is away is no reason to ask the others about every denial.
    pub(super) fn forget_denials(&self) {
        if let Some(cache) = self.deny_cache.as_ref().filter(|_| self.parts() == 1) {
            cache.forget();
        }
    }

    /// The groups of some keys, in order.
    pub(super) fn groups<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> KeyGroups {
        match &self.deny_cache {
            Some(cache) => keys.map(|key| cache.group(key)).collect(),
            None => KeyGroups::new(),
        }
    }

    /// One call of the script for all of `requests`.
    pub(super) async fn call<'a>(
        &self,
        mut connection: Connection,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> Result<Vec<Result<Verdict, Error>>, Error> {
        let _unanswered = Unanswered::new(requests.clone());
        let observer = self.observer.get();
        if let Some(observer) = &observer
            && self.guessable.load(Ordering::Relaxed)
            && self.warned.claim()
        {
            observer.on_warning(&Warning::GuessableKeys);
        }
        let observed =
            observer.map(|observer| BatchSpan::start(observer, requests.clone().map(|request| &request.check)));
        let now_us = self.script_now_us();
        let mut reply = self.run(&mut connection, now_us, requests.clone()).await;
        if now_us.is_none() && reply.as_ref().is_err_and(script::is_time_forbidden) {
            // The time is the first that the script asks for: nothing has been charged. In a box, because it is rare.
            reply = Box::pin(self.run(&mut connection, Some(wall_clock_us()), requests.clone())).await;
            // Only if that was all: a server that answers nothing else either is asked for its time again.
            if reply.is_ok() {
                let until_us = SystemClock.now_us() + TIME_FORBIDDEN_US;
                self.time_forbidden_until_us.store(until_us, Ordering::Relaxed);
            }
        }
        let convert = |message: &str| error::convert_reported(message, &self.source.passwords());
        let reply = reply
            .map_err(|error| self.failed(&connection, &error))
            .and_then(|reply| protocol::read(&reply, requests, convert));
        if let Some(observed) = observed {
            observed.end(reply.is_ok());
        }
        let reply = reply?;
        if reply.broken {
            connection.mark_broken();
            self.forget_denials();
        }
        Ok(reply.verdicts)
    }

    /// Runs the script once, by the time `now_us` or, if it is `None`, by the server's.
    pub(super) async fn run<'a>(
        &self,
        connection: &mut Connection,
        now_us: Option<u64>,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> redis::RedisResult<redis::Value> {
        let mut call = script::evalsha();
        protocol::write(&mut call, &self.prefix, now_us, requests);
        self.loader.run(connection, &call).await
    }

    /// The time that the script goes by, or `None` for the server's.
    pub(super) fn script_now_us(&self) -> Option<u64> {
        if let Some(clock) = &self.clock {
            return Some(clock.now_us());
        }
        let until_us = self.time_forbidden_until_us.load(Ordering::Relaxed);
        (until_us > 0 && SystemClock.now_us() < until_us).then(wall_clock_us)
    }

    /// What this store has on the current runtime.
    pub(super) fn link(&self) -> Result<Arc<Link>, Error> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        // No invariant spans a panic: opening a pool does no I/O.
        let lock = || self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let of_runtime = |links: &VecDeque<(runtime::Id, Arc<Link>)>| {
            links.iter().find(|(id, _)| *id == runtime).map(|(_, link)| Arc::clone(link))
        };
        if let Some(link) = of_runtime(&lock()) {
            return Ok(link);
        }
        // Without the lock: a panic hook may ask for the same link.
        if !(Driver::Timers.is_there() && Driver::Io.is_there()) {
            return Err(no_runtime());
        }
        let mut links = lock();
        if let Some(link) = of_runtime(&links) {
            return Ok(link);
        }
        let pool = self.source.open(self.deadline, self.first_dial_deadline);
        let link = Arc::new(Link { pool, batcher: Batcher::new(self.parts()) });
        links.push_back((runtime, Arc::clone(&link)));
        if links.len() > MAX_LINKS {
            links.pop_front();
        }
        Ok(link)
    }

    /// The time that remembered denials go by.
    pub(super) fn local_now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock.now_us(), |clock| clock.now_us())
    }

    /// The latest local time so far. Ours never runs backwards; a user's clock may.
    pub(super) fn latest_us(&self, now_us: u64) -> u64 {
        if self.clock.is_none() {
            return now_us;
        }
        self.latest_us.fetch_max(now_us, Ordering::Relaxed).max(now_us)
    }
}

pub(super) fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        "a check on Redis needs a tokio runtime with timers and I/O; build it with `enable_all()`",
    )
}

/// Then it is asked again, for its time is better than ours: all instances share it.
const TIME_FORBIDDEN_US: u64 = 60_000_000;

/// The machine's time, steps included: other machines are to agree on it, and the key's own time never runs backwards.
fn wall_clock_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// The check of a request as remembered denials have it, with keys that are not hashed, and what was known when it was
/// made.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) check: Check,
    epoch: u64,
    denials: u64,
    sent_us: u64,
}

/// Notes that a call of these requests is under way, until it is dropped.
struct Unanswered<'a, I: Iterator<Item = &'a Request> + Clone>(I);

impl<'a, I: Iterator<Item = &'a Request> + Clone> Unanswered<'a, I> {
    fn new(requests: I) -> Self {
        let now_us = SystemClock.now_us();
        requests.clone().for_each(|request| request.progress.sent(request.step, now_us));
        Self(requests)
    }
}

impl<'a, I: Iterator<Item = &'a Request> + Clone> Drop for Unanswered<'a, I> {
    fn drop(&mut self) {
        let now_us = SystemClock.now_us();
        self.0.clone().for_each(|request| request.progress.ended(now_us));
    }
}

/// Forgets the denials that concern some keys when it is made and when it is dropped.
pub(super) struct Forget<'a> {
    shared: &'a Shared,
    groups: KeyGroups,
}

/// One for each key; none without a deny cache.
pub(super) type KeyGroups = SmallVec<[KeyGroup; 4]>;

impl<'a> Forget<'a> {
    pub(super) fn new(shared: &'a Shared, groups: KeyGroups) -> Self {
        let this = Self { shared, groups };
        this.forget();
        this
    }

    fn forget(&self) {
        if let Some(cache) = &self.shared.deny_cache {
            self.groups.iter().for_each(|group| cache.forget_group(*group));
        }
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.forget();
    }
}
