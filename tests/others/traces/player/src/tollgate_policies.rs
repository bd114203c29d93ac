//! tollgate with its four algorithms and defaults, but for the deadline: a busy machine exceeds 50 ms.

use std::time::Duration;

use tollgate::{Algorithm, Limiter, Policy, RedisStore};

use crate::{Answer, Request, Result};

#[derive(Clone)]
pub struct Tollgate {
    limiter: Limiter,
}

impl Tollgate {
    pub fn open(url: &str) -> Result<Self> {
        let second = Duration::from_secs(5);
        let store = RedisStore::builder().deadline(second).first_dial_deadline(second).open(url)?;
        Ok(Self { limiter: Limiter::new(store) })
    }

    pub async fn ask(&self, algorithm: &str, request: &Request) -> Result<Answer> {
        let counted_by = match algorithm {
            "log" => Algorithm::SlidingWindowLog,
            "counter" => Algorithm::SlidingWindowCounter,
            "fixed window" => Algorithm::FixedWindow,
            "token bucket" => Algorithm::TokenBucket,
            _ => return Err(format!("tollgate has no algorithm of the name {algorithm}").into()),
        };
        let window = Duration::from_secs(request.window.into());
        // Algorithms have counts of their own, also under one name.
        let policy = Policy::new("trace", request.limit.into(), window)?.with_algorithm(counted_by);
        let decision = self.limiter.check(request.key.as_str(), &policy, request.weight.into()).await?;
        if decision.is_allowed() {
            return Ok(Answer::Allowed);
        }
        Ok(Answer::Denied(decision.retry_after().ok_or("a denial without a wait")?))
    }
}
