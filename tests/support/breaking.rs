//! A store whose breaker opens with its first failure.

use std::time::Duration;

use tollgate::{Limiter, failure::BreakerSettings, observe::Observer};

use super::per_minute;
use super::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// A store whose breaker opens with its first failure, and its limiter.
pub(crate) struct BreakingStore {
    store: UnhealthyStore,
    limiter: Limiter,
}

impl BreakingStore {
    /// Creates a limiter with an observer, whose breaker is open.
    pub(crate) async fn open(observer: impl Observer) -> Self {
        let settings = BreakerSettings::default().with_consecutive_failures(1);
        let settings = settings.with_probe_intervals(PROBE_INTERVAL, PROBE_INTERVAL);
        let store = UnhealthyStore::with_breaker(UNAVAILABLE, Some(settings));
        let limiter = Limiter::new(store.clone()).without_notices().with_observer(observer);
        let breaking = Self { store, limiter };
        assert!(!breaking.check().await && breaking.limiter.is_breaker_open());
        breaking
    }

    /// Lets a probe fail.
    pub(crate) async fn probe(&self) {
        tokio::time::sleep(2 * PROBE_INTERVAL).await;
        assert!(!self.check().await && self.limiter.is_breaker_open());
    }

    /// Ends the failure, until a probe has closed the breaker.
    pub(crate) async fn close(&self) {
        self.store.set_health(Health::Healthy);
        while !self.check().await {
            tokio::time::sleep(PROBE_INTERVAL).await;
        }
    }

    async fn check(&self) -> bool {
        self.limiter.check("k", &per_minute("p", 1_000), 1).await.is_ok()
    }
}
