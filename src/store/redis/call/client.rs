//! Sends calls of the script to Redis and reads their replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::net::{Pool, Target, address::Settings, error, routed::RoutedConnection};
use super::calendar_times::{CalendarTimes, StaleWindow};
use super::reply::{self, Reply};
use super::script::{self, Loader, ScriptClock};
use super::{
    PerRuntime, Runtimes, denials::Denials, outgoing::Request, progress::Progress, protocol, queue::Queues,
    redis_key::RedisKeys, refund_list::Refunds, traffic::CLUSTER_DOMAINS,
};
use crate::clock::{Clock, SystemClock, wall_time_us};
use crate::error::{Error, ErrorKind, StoreEvidence};
use crate::observe::{BatchSpan, Event, ObserverCell, Once, Warning};
use crate::{runtime::deadline::within, verdict::Verdict};

/// The connections of a store and the settings of its calls.
pub(crate) struct Client {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    pub(crate) keys: RedisKeys,
    /// Whether checks that wait at the same time share a call.
    pub(crate) batching: bool,
    pub(crate) clock: ScriptClock,
    pub(crate) denials: Arc<Denials>,
    pub(crate) observer: ObserverCell,
    /// Whether a key was hashed without a secret.
    pub(crate) has_unkeyed_hashes: AtomicBool,
    /// The warning about keys that were hashed without a secret.
    pub(crate) unkeyed_warning: Once,
    pub(crate) loader: Loader,
    pub(crate) runtimes: Runtimes,
    /// Refunds on a cluster that are not answered yet.
    pub(crate) refunds: Refunds,
}

impl Client {
    /// The connections and queues of the current runtime.
    pub(crate) fn runtime(&self) -> Result<Arc<PerRuntime>, Error> {
        self.runtimes.current(|| PerRuntime {
            pool: self.target.open(self.settings.clone()),
            queues: Queues::new(self.failure_domains()),
        })
    }

    /// The number of failure domains.
    pub(crate) fn failure_domains(&self) -> usize {
        if self.target.is_cluster() { CLUSTER_DOMAINS } else { 1 }
    }

    /// A connection to the server that has `slot`. Fails as soon as a dial has failed, at the latest after the
    /// deadline.
    pub(crate) async fn connect(&self, pool: &Pool, slot: u16) -> Result<RoutedConnection, Error> {
        let late =
            || Err(Error::new(ErrorKind::Unavailable, "no connection in time").with_evidence(StoreEvidence::Late));
        let result = within(self.settings.deadline, pool.get(slot)).await.unwrap_or_else(late);
        result.inspect_err(|_| self.denials.connection_lost())
    }

    /// Waits for the first dials of the servers that have these slots, while they are in progress.
    pub(crate) async fn await_first_dials(&self, pool: &Pool, slots: &[u16], progress: &Progress) -> Result<(), Error> {
        if slots.iter().all(|&slot| pool.first_dial(slot).is_none()) {
            return Ok(());
        }
        // Boxed, because the wait is rare and its future is large.
        let dialled = Box::pin(async {
            for &slot in slots {
                // On a cluster the slot map is loaded first, and then its master is dialled.
                while let Some(dial) = pool.first_dial(slot) {
                    if !dial.wait().await {
                        return false;
                    }
                }
            }
            true
        });
        let Settings { deadline, first_dial_deadline, .. } = self.settings;
        progress.awaits_first_dial(first_dial_deadline);
        match within(first_dial_deadline, dialled).await {
            Some(true) => progress.first_dial_ended(),
            _ => progress.first_dial_timed_out(deadline)?,
        }
        Ok(())
    }

    /// Sends one call with all of `requests`, whose keys are all on the server at the other end. Returns a verdict or
    /// an error for each.
    pub(crate) async fn call<'a>(
        &self,
        mut connection: RoutedConnection,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> Result<Verdicts, Error> {
        let _in_flight = InFlight::new(requests.clone());
        let observer = self.observer.get();
        if let Some(observer) = &observer
            && self.has_unkeyed_hashes.load(Ordering::Relaxed)
            && self.unkeyed_warning.claim()
        {
            observer.on_event(&Event::of_warning(Warning::guessable_keys()));
        }
        let observed = observer.map(|observer| BatchSpan::start(observer, requests.clone().map(Request::len)));
        let reply = self.exchange(&mut connection, requests.clone(), &[]).await;
        if let Some(observed) = observed {
            observed.end(reply.is_ok());
        }
        let reply = reply?;
        if reply.stale.is_empty() {
            return Ok(reply.verdicts);
        }
        // Boxed, because a repetition is rare and its future is large.
        Ok(Box::pin(self.repeat_stale(connection, requests.collect(), reply)).await)
    }

    /// Sends a call, and reads its reply.
    async fn exchange<'a>(
        &self,
        connection: &mut RoutedConnection,
        requests: impl Iterator<Item = &'a Request> + Clone,
        stale: &[StaleWindow<'_>],
    ) -> Result<Reply, Error> {
        let now_us = self.clock.now_us();
        let mut reply = self.run(connection, now_us, requests.clone(), stale).await;
        if now_us.is_none() && reply.as_ref().is_err_and(script::is_time_forbidden) {
            // The script requests the time first, so nothing has been charged. Boxed, because a second call is rare and
            // its future is large.
            reply = Box::pin(self.run(connection, Some(wall_time_us()), requests.clone(), stale)).await;
            // If the second call fails as well, the first error may have had another reason.
            if reply.is_ok() {
                self.clock.time_is_forbidden();
            }
        }
        let convert = |message: &str| error::convert_reported(message, &self.target.passwords());
        let reply = reply
            .map_err(|error| self.failed(connection, &error))
            .and_then(|reply| reply::read(&reply, requests, convert))?;
        if let Some(time_us) = reply.calendar_time_us {
            self.clock.replied(time_us);
        }
        if reply.breaks_connection {
            connection.mark_broken();
            self.denials.connection_lost();
        }
        Ok(reply)
    }

    /// Repeats the requests of a call whose calendar windows were stale: the script has refused them, so nothing of
    /// them was charged. Each reply corrects a charge of each request, and a further boundary may pass meanwhile.
    async fn repeat_stale(&self, mut connection: RoutedConnection, requests: Vec<&Request>, first: Reply) -> Verdicts {
        let Reply { mut verdicts, stale: mut found, .. } = first;
        // The requests that are repeated, by their numbers in the first call.
        let mut numbers: Vec<usize> = (0..requests.len()).collect();
        let mut stale = Vec::new();
        let most = 2 + requests.iter().map(|request| request.len()).max().unwrap_or_default();
        for _ in 0..most {
            let repeated = found.iter().map(|(index, ..)| numbers[*index]).collect::<Vec<_>>();
            stale.extend(found.iter().map(|&(index, charge, time_us)| {
                let request = requests[numbers[index]];
                StaleWindow { request, charge, time_us }
            }));
            numbers = repeated;
            if numbers.is_empty() {
                break;
            }
            let again = numbers.iter().map(|number| requests[*number]);
            match self.exchange(&mut connection, again, &stale).await {
                Ok(reply) => {
                    for (number, verdict) in numbers.iter().zip(reply.verdicts) {
                        verdicts[*number] = verdict;
                    }
                    found = reply.stale;
                }
                Err(error) => {
                    numbers.iter().for_each(|number| verdicts[*number] = Err(error.clone()));
                    break;
                }
            }
        }
        verdicts
    }

    /// Runs the script once, with the time `now_us`. The script uses the server's time if `now_us` is `None`.
    async fn run<'a>(
        &self,
        connection: &mut RoutedConnection,
        now_us: Option<u64>,
        requests: impl Iterator<Item = &'a Request> + Clone,
        stale: &[StaleWindow<'_>],
    ) -> redis::RedisResult<redis::Value> {
        let mut call = script::evalsha();
        protocol::write(&mut call, &self.keys, &CalendarTimes { clock: &self.clock, now_us, stale }, requests);
        self.loader.run(connection, &call).await
    }

    /// Converts the error of a call. Marks the connection as broken if the error demands it.
    pub(crate) fn failed(&self, connection: &RoutedConnection, error: &redis::RedisError) -> Error {
        if error::breaks_connection(error) {
            connection.mark_broken();
            self.denials.connection_lost();
        }
        error::convert(error, &self.target.passwords())
    }
}

/// A verdict or an error for each request.
type Verdicts = Vec<Result<Verdict, Error>>;

/// Records in the progress of each check that a call is in flight, until this guard is dropped.
struct InFlight<'a, I: Iterator<Item = &'a Request> + Clone>(I);

impl<'a, I: Iterator<Item = &'a Request> + Clone> InFlight<'a, I> {
    fn new(requests: I) -> Self {
        let now_us = SystemClock.now_us();
        requests.clone().for_each(|Request { outgoing, step, .. }| {
            outgoing.progress.sent(step.may_charge(), now_us);
        });
        Self(requests)
    }
}

impl<'a, I: Iterator<Item = &'a Request> + Clone> Drop for InFlight<'a, I> {
    fn drop(&mut self) {
        let now_us = SystemClock.now_us();
        self.0.clone().for_each(|request| request.outgoing.progress.ended(now_us));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use smallvec::smallvec;

    use super::{
        super::{outgoing::Outgoing, traffic::Traffic},
        *,
    };
    use crate::{check::Check, key::Key, policy::Policy, runtime::world::World, store::contract::DeadlineHandler};

    #[tokio::test(start_paused = true)]
    async fn a_check_waits_for_redis_until_its_call_ends_and_not_longer() {
        const DEADLINE: Duration = Duration::from_millis(50);
        let policy = Policy::per_minute("p", 10).unwrap();
        for (in_flight_us, kind) in [(1_000, ErrorKind::Overloaded), (49_000, ErrorKind::Deadline)] {
            let (world, traffic) = (World::enter(1_000_000, 1), Arc::clone(&Traffic::of_domains(1)[0]));
            let (check, progress) = (Check::new("k", &policy, 1), Progress::new(false));
            progress.queued(&traffic);
            let outgoing = Outgoing::new(check, smallvec![Key::from("k")], Arc::clone(&progress), None);
            let request = Request::whole(Arc::new(outgoing));
            let call = InFlight::new(std::iter::once(&request));
            world.set_time_us(1_000_000 + in_flight_us);
            drop(call);
            world.set_time_us(1_050_000);
            // Redis answers others.
            traffic.answered();
            assert_eq!(progress.error(DEADLINE).kind(), kind, "{in_flight_us}");
        }
    }
}
