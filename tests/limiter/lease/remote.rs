//! A store in memory behind a network: its answers take a while, its calls are counted, and it may be away.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{
    Check, Error, ErrorKind, Key, Limiter, MemoryStore, Policy, clock::TokioClock, failure::BreakerSettings,
};

#[derive(Clone, Debug)]
pub(crate) struct Remote {
    memory: MemoryStore,
    calls: Arc<Calls>,
    breaker: Option<BreakerSettings>,
    /// The number of failure domains.
    domains: usize,
}

#[derive(Debug, Default)]
struct Calls {
    /// In microseconds. Half of it passes in each direction.
    latency_us: AtomicU64,
    plain: AtomicUsize,
    holds: AtomicUsize,
    settlements: AtomicUsize,
    is_away: AtomicBool,
    loses_holds: AtomicBool,
    keeps_holds: AtomicBool,
    loses_settlements: AtomicBool,
    /// Some answers take longer, so that later ones overtake them.
    has_jitter: AtomicBool,
    answers: AtomicU64,
}

/// What becomes of the reply to a call.
enum Reply {
    Comes,
    IsLost,
    NeverComes,
}

impl Remote {
    /// Half of `latency` passes in each direction.
    pub(crate) fn new(latency: Duration) -> (Self, TokioClock) {
        let clock = TokioClock::new();
        let memory = MemoryStore::new().with_clock(clock);
        let this = Self { memory, calls: Arc::default(), breaker: None, domains: 1 };
        this.set_latency(latency);
        (this, clock)
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        self.calls.latency_us.store(latency.as_micros() as u64, Ordering::SeqCst);
    }

    fn latency(&self) -> Duration {
        Duration::from_micros(self.calls.latency_us.load(Ordering::SeqCst))
    }

    pub(crate) fn limiter(&self) -> Limiter {
        Limiter::new(self.clone())
    }

    /// The numbers of plain checks, holds and settlements.
    pub(crate) fn calls(&self) -> [usize; 3] {
        [&self.calls.plain, &self.calls.holds, &self.calls.settlements].map(|count| count.load(Ordering::SeqCst))
    }

    /// Lets the store refuse every call, or answer again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.calls.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Lets the store make holds and lose its replies, or reply again.
    pub(crate) fn set_loses_holds(&self, loses: bool) {
        self.calls.loses_holds.store(loses, Ordering::SeqCst);
    }

    /// Lets the store make holds and never reply, or reply again.
    pub(crate) fn set_keeps_holds(&self, keeps: bool) {
        self.calls.keeps_holds.store(keeps, Ordering::SeqCst);
    }

    /// Lets settlements get lost on their way, or arrive again.
    pub(crate) fn set_loses_settlements(&self, loses: bool) {
        self.calls.loses_settlements.store(loses, Ordering::SeqCst);
    }

    /// Lets every other answer take four times as long.
    pub(crate) fn with_jitter(self) -> Self {
        self.calls.has_jitter.store(true, Ordering::SeqCst);
        self
    }

    /// Lets the store have two failure domains, as a cluster of two nodes has.
    pub(crate) fn of_two_domains(self) -> Self {
        Self { domains: 2, ..self }
    }

    pub(crate) fn with_breaker(self) -> Self {
        Self { breaker: Some(BreakerSettings::default()), ..self }
    }

    /// How long the next answer is on its way back.
    fn way_back(&self) -> Duration {
        let is_late = self.calls.has_jitter.load(Ordering::SeqCst)
            && self.calls.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        if is_late { 2 * self.latency() } else { self.latency() / 2 }
    }

    fn answer<T: Send + 'static>(
        &self,
        reply: Reply,
        judge: impl FnOnce(&MemoryStore) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let this = self.clone();
        let unavailable = |message| Error::new(ErrorKind::Unavailable, message);
        Answer::pending(async move {
            sleep(this.latency() / 2).await;
            if this.calls.is_away.load(Ordering::SeqCst) {
                return Err(unavailable("connection refused"));
            }
            let Answer::Ready(result) = judge(&this.memory) else { panic!("a memory store answers at once") };
            sleep(this.way_back()).await;
            match reply {
                Reply::Comes => result,
                Reply::IsLost => Err(unavailable("connection reset").charge_unknown()),
                Reply::NeverComes => std::future::pending().await,
            }
        })
    }
}

impl Store for Remote {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let is_hold = check.charges().iter().any(|charge| charge.hold.is_some());
        let count = if is_hold { &self.calls.holds } else { &self.calls.plain };
        count.fetch_add(1, Ordering::SeqCst);
        let check = check.clone();
        let reply = match &self.calls {
            _ if !is_hold => Reply::Comes,
            calls if calls.loses_holds.load(Ordering::SeqCst) => Reply::IsLost,
            calls if calls.keeps_holds.load(Ordering::SeqCst) => Reply::NeverComes,
            _ => Reply::Comes,
        };
        self.answer(reply, move |memory| memory.check(&check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let (key, policy) = (key.clone(), policy.clone());
        self.answer(Reply::Comes, move |memory| memory.reset(&key, &policy))
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        let check = check.clone();
        self.answer(Reply::Comes, move |memory| memory.peek(&check))
    }

    fn charge_up_to(&self, charge: &Charge) -> Answer<(Verdict, u64)> {
        let charge = charge.clone();
        self.answer(Reply::Comes, move |memory| memory.charge_up_to(&charge))
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        self.breaker
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn failure_domains(&self) -> usize {
        self.domains
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        self.calls.settlements.fetch_add(1, Ordering::SeqCst);
        if self.calls.loses_settlements.load(Ordering::SeqCst) {
            return Answer::pending(std::future::pending());
        }
        let hold = hold.clone();
        self.answer(Reply::Comes, move |memory| memory.change_hold(&hold, change))
    }
}
