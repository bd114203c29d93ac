//! A store that is wrong: it reads a count with one call of Redis, and writes it with a second one.

use std::fmt;

use tokio::sync::OnceCell;
use tollgate::redis::{self, AsyncCommands, Client, aio::MultiplexedConnection};
use tollgate::store::{Answer, Check, Outcome, Store, Verdict};
use tollgate::{Error, ErrorKind, Key, Policy, decision::Source};

#[derive(Clone)]
pub(super) struct TwoCalls {
    client: Client,
    connection: OnceCell<MultiplexedConnection>,
}

impl TwoCalls {
    pub(super) fn new(url: &str) -> Self {
        Self { client: Client::open(url).unwrap(), connection: OnceCell::new() }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let connection = self.connection.get_or_try_init(|| self.client.get_multiplexed_async_connection()).await;
        connection.cloned().map_err(unavailable)
    }

    async fn judge(self, check: Check, is_peek: bool) -> Result<Verdict, Error> {
        let mut connection = self.connection().await?;
        let [charge] = check.charges() else { panic!("a check of one policy") };
        let count = name(&charge.key, &charge.policy);
        let spent: Option<u64> = connection.get(&count).await.map_err(unavailable)?;
        let left = charge.policy.limit() - spent.unwrap_or(0);
        let fits = charge.cost <= left;
        let cost = if fits && !is_peek { charge.cost } else { 0 };
        if cost > 0 {
            let written: Result<(), redis::RedisError> = connection.set(&count, spent.unwrap_or(0) + cost).await;
            written.map_err(|error| unavailable(error).charge_unknown())?;
        }
        let outcome = Outcome {
            fits,
            available: left - cost,
            retry_after_us: (!fits).then_some(1),
            next_us: 1,
            reset_us: 1,
            ban_us: 0,
        };
        Ok(Verdict { allowed: fits, source: Source::Store, time_us: 0, outcomes: [outcome].into_iter().collect() })
    }
}

impl Store for TwoCalls {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        Answer::pending(self.clone().judge(check.clone(), false))
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        Answer::pending(self.clone().judge(check.clone(), true))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let (store, count) = (self.clone(), name(key, policy));
        Answer::pending(async move { store.connection().await?.del(&count).await.map_err(unavailable) })
    }
}

impl fmt::Debug for TwoCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TwoCalls")
    }
}

pub(super) fn name(key: &Key, policy: &Policy) -> Vec<u8> {
    [policy.name().as_bytes(), b":", key.encoded()].concat()
}

pub(super) fn unavailable(error: redis::RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string())
}
