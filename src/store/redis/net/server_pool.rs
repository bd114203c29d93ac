//! A few multiplexed connections to one server, in a bb8 pool.
//!
//! A multiplexed connection serves any number of callers at once, so a checkout clones the connection and returns the
//! guard before a command is sent. Checkouts never wait for each other, no PING is sent, and the next checkout replaces
//! a connection that broke. After a failed dial, checks fail immediately instead of waiting for the next one.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Weak};
use std::{pin::pin, task::Poll};

use bb8_redis::bb8::{self, QueueStrategy, RunError};
use redis::RedisError;
use tokio::sync::Semaphore;

use super::address::{Address, Settings};
use super::{
    connection::Connection, dialer::Dialer, first_dial::FirstDial, master_search::MasterWatch, redial::Redial,
};
use crate::error::{Error, ErrorKind};

/// A pool of connections to one server.
#[derive(Debug)]
pub(crate) struct ServerPool {
    dialer: Dialer,
    pool: Arc<bb8::Pool<Dialer>>,
    /// Turns to send calls, for callers that wait while other calls are in flight.
    pub(crate) turns: Arc<Semaphore>,
    /// Ends the dials when the pool is dropped.
    _alive: Arc<()>,
    _redial: Arc<Redial>,
    /// `None` for a server that is not behind sentinels.
    _watch: Option<MasterWatch>,
}

/// The number of calls that have a turn at the same time: a server evaluates one while the next one travels.
const TURNS: usize = 2;

impl ServerPool {
    /// Opens a pool on the current runtime and dials at once.
    pub(crate) fn open(address: Address, size: u32, settings: Settings, first_dial: FirstDial) -> Self {
        let alive = Arc::new(());
        let dialer = Dialer::new(address, settings, first_dial, Arc::downgrade(&alive));
        let pool = Arc::new(build(dialer.clone(), size));
        let of_redial = Arc::downgrade(&pool);
        let redial = Redial::new(move || Box::pin(replace_lost(Weak::clone(&of_redial))));
        dialer.redial_with(&redial);
        let watch = match &dialer.address {
            Address::Sentinels(sentinels) => Some(MasterWatch::start((**sentinels).clone())),
            Address::Server(_) => None,
        };
        Self { dialer, pool, turns: Arc::new(Semaphore::new(TURNS)), _alive: alive, _redial: redial, _watch: watch }
    }

    /// The first dial, while it is in progress.
    pub(crate) fn first_dial(&self) -> Option<&FirstDial> {
        Some(&self.dialer.first_dial).filter(|dial| !dial.is_over())
    }

    /// A connection that is not known to be broken.
    pub(crate) async fn get(&self) -> Result<Connection, Error> {
        loop {
            let guard = self.unless_dial_failed(self.pool.get()).await?;
            if !guard.is_broken() {
                return Ok(guard.clone());
            }
            // When the guard of a broken connection is dropped, the pool dials a new one.
        }
    }

    /// Waits for a checkout. Fails at once while there is no connection and the last dial has failed.
    async fn unless_dial_failed<T>(
        &self,
        checkout: impl Future<Output = Result<T, RunError<RedisError>>>,
    ) -> Result<T, Error> {
        let mut checkout = pin!(checkout);
        let mut failed = pin!(self.dialer.failure.wait_for(Option::is_some));
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = checkout.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            // Another thread may hold the guard of an existing connection, which it returns at once.
            if self.pool.state().connections > 0 {
                return Poll::Pending;
            }
            failed.as_mut().poll(cx).map(|_| None)
        });
        match result.await {
            Some(Ok(guard)) => Ok(guard),
            Some(Err(RunError::User(error))) => Err(self.dialer.address.dial_error(&error)),
            Some(Err(RunError::TimedOut)) => Err(no_connection()),
            None => Err(self.dialer.failure.get().unwrap_or_else(no_connection)),
        }
    }
}

/// Takes the idle connections out and puts them back. The pool drops those that are broken, and dials new ones.
async fn replace_lost(pool: Weak<bb8::Pool<Dialer>>) {
    let Some(pool) = pool.upgrade() else { return };
    for _ in 0..pool.state().idle_connections {
        let mut checkout = pin!(pool.get());
        // An idle connection is there at once.
        let idle = poll_fn(|cx| match checkout.as_mut().poll(cx) {
            Poll::Ready(guard) => Poll::Ready(guard.ok()),
            Poll::Pending => Poll::Ready(None),
        });
        if idle.await.is_none() {
            return;
        }
    }
}

/// Builds the bb8 pool.
fn build(dialer: Dialer, size: u32) -> bb8::Pool<Dialer> {
    bb8::Pool::builder()
        .max_size(size)
        // A pool grows by itself only while guards are held. Here no guard is held for long, so all connections are
        // requested.
        .min_idle(size)
        // First in, first out: calls take the connections in turn.
        .queue_strategy(QueueStrategy::Fifo)
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        // The dialer retries by itself, with its backoff.
        .retry_connection(false)
        .build_unchecked(dialer)
}

/// The error of a checkout that timed out.
pub(crate) fn no_connection() -> Error {
    Error::new(ErrorKind::Unavailable, "no connection")
}
