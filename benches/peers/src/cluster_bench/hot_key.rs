//! One hot key that the stores of several processes check.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use tollgate::{Limiter, Policy, RedisStore};

use super::nodes::Nodes;
use crate::{Result, redis_bench::Checker};

/// The exact log without the deny cache, so that Redis makes every decision.
pub struct HotKey {
    pub limiter: Limiter,
    pub policy: Policy,
    /// The limiters of all stores. Clones take turns.
    all: Arc<[Limiter]>,
    turn: Arc<AtomicUsize>,
}

impl HotKey {
    pub fn new(nodes: &Nodes, prefix: &str, policy: Policy, stores: usize) -> Result<Self> {
        let limiter = |_| {
            let builder = RedisStore::builder().prefix(prefix).deadline(Duration::from_secs(10)).deny_cache(false);
            Ok(Limiter::new(builder.open_cluster(nodes.urls())?))
        };
        let all: Arc<[Limiter]> = (0..stores).map(limiter).collect::<Result<_>>()?;
        Ok(Self { limiter: all[0].clone(), policy, all, turn: Arc::default() })
    }

    /// Connects all stores.
    pub async fn ready(&self) -> Result<()> {
        for limiter in &*self.all {
            limiter.ready().await?;
        }
        Ok(())
    }
}

impl Clone for HotKey {
    fn clone(&self) -> Self {
        let limiter = &self.all[self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len()];
        Self {
            limiter: limiter.clone(),
            policy: self.policy.clone(),
            all: Arc::clone(&self.all),
            turn: Arc::clone(&self.turn),
        }
    }
}

impl Checker for HotKey {
    async fn check(&mut self, key: &str) -> Result<bool> {
        Ok(self.limiter.check(key, &self.policy, 1).await?.is_allowed())
    }
}
