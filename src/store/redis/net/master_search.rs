//! Finds a master through its sentinels, and asks them once a second which server is the master.
//!
//! When a failover is requested, sentinels promote a replica and leave the old master as it is for about ten seconds.
//! Until then it accepts writes, and all of them are lost when it becomes a replica. So the store does not wait for
//! the error of a replica: it leaves a master as soon as most sentinels name another one.

use std::{future::Future, time::Duration};

use redis::{ErrorKind, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{backoff::Backoff, endpoint::Endpoint, error, first_dial::DialProgress, url::Sentinels, wire::Wire};
use crate::runtime::deadline::within;

/// How long a connection to a master waits for more sentinels. During a failover two servers can report the role of a
/// master, and only some sentinels know which one is to stay.
const PATIENCE: Duration = Duration::from_millis(100);

/// A step towards the master.
enum Step {
    /// A sentinel has named this host and port.
    Named(String, u16),
    /// The server at this address reports the role of a master, or an error.
    Dialled(String, RedisResult<Wire>),
}

/// A server that sentinels name.
struct Candidate {
    address: String,
    /// The number of sentinels that name it.
    votes: usize,
    /// Connected, if it reports the role of a master.
    wire: Option<Wire>,
}

/// What the sentinels and the servers have answered so far.
struct Search<'a> {
    sentinels: &'a Sentinels,
    progress: &'a DialProgress,
    steps: JoinSet<RedisResult<Step>>,
    candidates: Vec<Candidate>,
    /// The number of candidates that have not answered yet.
    unanswered: usize,
    /// The error that says most, and how much.
    failure: Option<(Weight, RedisError)>,
}

/// Asks all sentinels at the same time, because the first one may be lost together with the machine of the master. Each
/// server that one of them names is dialled once. Of those that report the role of a master, the store follows the one
/// that most sentinels name.
pub(super) async fn dial_master(sentinels: &Sentinels, progress: &DialProgress) -> RedisResult<Wire> {
    progress.begins_in(sentinels.followed.tenure());
    let mut steps = JoinSet::new();
    for sentinel in sentinels.sentinels.clone() {
        let (name, progress) = (sentinels.name().to_owned(), progress.of_sentinel());
        steps.spawn(async move {
            let mut wire = Wire::dial(&sentinel, &progress).await?;
            let (host, port) = named_by(&mut wire.connection, &name).await?;
            Ok(Step::Named(host, port))
        });
    }
    let mut search = Search { sentinels, progress, steps, candidates: Vec::new(), unanswered: 0, failure: None };
    search.until(|masters| !masters.is_empty()).await;
    let is_clear = |masters: &[&Candidate]| masters.iter().any(|master| sentinels.are_most(master.votes));
    if !is_clear(&search.masters()) {
        within(PATIENCE, search.until(is_clear)).await;
    }
    search.end()
}

impl Search<'_> {
    /// Takes steps until there are none left, or until the masters that were found are enough.
    async fn until(&mut self, are_enough: impl Fn(&[&Candidate]) -> bool) {
        while !are_enough(&self.masters())
            && let Some(step) = self.steps.join_next().await
        {
            // Otherwise the task has panicked, or the runtime is shutting down.
            if let Ok(step) = step {
                self.take(step);
            }
        }
    }

    fn take(&mut self, step: RedisResult<Step>) {
        match step {
            Ok(Step::Named(host, port)) => {
                self.progress.is_named();
                let (master, progress) = (self.sentinels.master_at(host, port), self.progress.clone());
                let address = master.info.addr().to_string();
                match self.candidate(&address) {
                    Some(known) => known.votes += 1,
                    None => {
                        self.candidates.push(Candidate { address: address.clone(), votes: 1, wire: None });
                        self.unanswered += 1;
                        self.steps.spawn(async move { Ok(Step::Dialled(address, dialled(&master, &progress).await)) });
                    }
                }
            }
            Ok(Step::Dialled(address, result)) => {
                self.unanswered -= 1;
                match result {
                    Ok(wire) => {
                        if let Some(known) = self.candidate(&address) {
                            known.wire = Some(wire);
                        }
                    }
                    Err(error) => self.fails(true, error),
                }
            }
            Err(error) => self.fails(false, error),
        }
        self.progress.set_answer(self.answer());
    }

    /// The error of the servers that most sentinels name, if all of them have failed.
    fn answer(&self) -> Option<RedisError> {
        let votes = self.candidates.iter().map(|known| known.votes).sum();
        let have_failed = self.unanswered == 0 && self.masters().is_empty() && self.sentinels.are_most(votes);
        self.failure.as_ref().filter(|_| have_failed).map(|(_, error)| error.clone())
    }

    /// Keeps the error that says most. Of several, the last one.
    fn fails(&mut self, is_of_server: bool, error: RedisError) {
        let weight = (is_of_server, weight(&error));
        if self.failure.as_ref().is_none_or(|(known, _)| weight >= *known) {
            self.failure = Some((weight, error));
        }
    }

    fn candidate(&mut self, address: &str) -> Option<&mut Candidate> {
        self.candidates.iter_mut().find(|known| known.address == address)
    }

    fn masters(&self) -> Vec<&Candidate> {
        self.candidates.iter().filter(|known| known.wire.is_some()).collect()
    }

    /// The master that most sentinels name. Of two with the same number, the one that the store follows.
    fn end(self) -> RedisResult<Wire> {
        let Self { sentinels, candidates, failure, .. } = self;
        let masters = candidates.into_iter().filter_map(|known| Some((known.votes, known.address, known.wire?)));
        let followed = &sentinels.followed;
        match masters.max_by_key(|(votes, address, _)| (*votes, followed.is(address))) {
            Some((_, address, wire)) => Ok(Wire { tenure: Some(followed.set(&address)), ..wire }),
            None => {
                let no_answer = || RedisError::from((ErrorKind::EmptySentinelList, "no sentinel answered"));
                Err(failure.map_or_else(no_answer, |(_, error)| error))
            }
        }
    }
}

/// How much an error says: first, whether it is that of a server that a sentinel has named. While the master is away, a
/// wrong login or certificate of one of several sentinels is not the reason, and must not make the pauses longer.
type Weight = (bool, u8);

/// How much an error says among those of sentinels, or among those of servers. A sentinel without the name says less
/// than a failure: it may monitor other masters. What is wrong with the setup stays wrong, so it says more than another
/// failure. A wrong scheme or certificate says most.
fn weight(error: &RedisError) -> u8 {
    match error.kind() {
        _ if error::is_invalid_data(error) => 3,
        ErrorKind::MasterNameNotFoundBySentinel => 0,
        _ if error::is_misconfigured(error) => 2,
        _ => 1,
    }
}

/// The host and the port of the master that a sentinel names.
async fn named_by(sentinel: &mut MultiplexedConnection, name: &str) -> RedisResult<(String, u16)> {
    let lookup = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).to_owned();
    lookup.query_async::<Option<(String, u16)>>(sentinel).await?.ok_or_else(|| {
        RedisError::from((
            ErrorKind::MasterNameNotFoundBySentinel,
            "no sentinel knows a master of this name",
            format!("correct the name {name} in the call of open_sentinel"),
        ))
    })
}

/// A connection to a server that a sentinel has named, if the server is a master. A sentinel may lag behind a failover.
pub(super) async fn dialled(server: &Endpoint, progress: &DialProgress) -> RedisResult<Wire> {
    let mut wire = Wire::dial(server, progress).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut wire.connection).await?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(wire),
        _ => Err(RedisError::from((ErrorKind::Io, "the server that a sentinel names is not a master yet"))),
    }
}

/// Time between two questions, and the longest time of an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that asks the sentinels. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct MasterWatch(JoinHandle<()>);

/// A sentinel, and the connection to it while it answers.
struct Link {
    sentinel: Endpoint,
    connection: Option<MultiplexedConnection>,
    /// The pauses between dials that fail by a mistake of the setup, such as a login that is refused.
    refused: Option<Backoff>,
}

/// A server that most sentinels name while the store follows another one.
#[derive(Default)]
struct Elected {
    address: String,
    refused: Option<Backoff>,
}

impl MasterWatch {
    /// Starts the task on the current runtime.
    pub(super) fn start(sentinels: Sentinels) -> Self {
        Self(tokio::spawn(watch(sentinels)))
    }
}

impl Drop for MasterWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(sentinels: Sentinels) {
    let link = |sentinel: &Endpoint| Link { sentinel: sentinel.clone(), connection: None, refused: None };
    let (mut links, mut elected) = (Vec::<Link>::new(), Elected::default());
    let mut rounds = interval_at(Instant::now() + PAUSE, PAUSE);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        if !sentinels.followed.is_question_due(PAUSE / 2) {
            // Another runtime asks, so the connections of this one are not needed.
            links.iter_mut().for_each(|link| link.connection = None);
            continue;
        }
        // A panic takes its link along.
        if links.len() < sentinels.sentinels.len() {
            links = sentinels.sentinels.iter().map(link).collect();
        }
        links = ask_all(links, &sentinels, &mut elected).await;
    }
}

/// Asks all sentinels. Follows the server that most of them name, without waiting for the others. Returns the links.
async fn ask_all(links: Vec<Link>, sentinels: &Sentinels, elected: &mut Elected) -> Vec<Link> {
    let mut questions = JoinSet::new();
    for mut link in links {
        let name = sentinels.name().to_owned();
        questions.spawn(async move {
            let named = within(PAUSE, link.ask(&name)).await.flatten();
            if named.is_none() {
                link.connection = None;
            }
            (link, named)
        });
    }
    let (mut links, mut named, mut is_decided) = (Vec::new(), Vec::new(), false);
    while let Some(answer) = questions.join_next().await {
        // Otherwise the task has panicked, or the runtime is shutting down.
        if let Ok((link, server)) = answer {
            links.push(link);
            named.extend(server);
        }
        if !is_decided && let Some(server) = named_by_most(sentinels, &named) {
            is_decided = true;
            follow(sentinels, server, elected).await;
        }
    }
    links
}

fn named_by_most<'a>(sentinels: &Sentinels, named: &'a [(String, u16)]) -> Option<&'a (String, u16)> {
    let votes = |server: &(String, u16)| named.iter().filter(|other| *other == server).count();
    named.iter().find(|server| sentinels.are_most(votes(server)))
}

impl Link {
    async fn ask(&mut self, name: &str) -> Option<(String, u16)> {
        if self.connection.is_none() {
            let progress = DialProgress::default();
            let dial = unless_pausing(&mut self.refused, Wire::dial(&self.sentinel, &progress));
            self.connection = Some(dial.await?.connection);
        }
        named_by(self.connection.as_mut()?, name).await.ok()
    }
}

/// The connection that a dial makes. Pauses after mistakes of the setup, as a pool does, and after no other failure: a
/// sentinel that is back may be the one that sees a failover.
async fn unless_pausing(refused: &mut Option<Backoff>, dial: impl Future<Output = RedisResult<Wire>>) -> Option<Wire> {
    if refused.as_ref().is_some_and(|refused| !refused.pause().is_zero()) {
        return None;
    }
    let known = refused.take();
    let result = dial.await;
    if result.as_ref().is_err_and(error::is_misconfigured) {
        let refused = refused.insert(known.unwrap_or_default());
        refused.dial_starts();
        refused.was_refused();
    }
    result.ok()
}

/// Follows the server that most sentinels name, if it has taken office: connections to another one end.
async fn follow(sentinels: &Sentinels, (host, port): &(String, u16), elected: &mut Elected) {
    let master = sentinels.master_at(host.clone(), *port);
    let address = master.info.addr().to_string();
    if sentinels.followed.is(&address) {
        *elected = Elected::default();
        return;
    }
    if elected.address != address {
        *elected = Elected { address, refused: None };
    }
    let progress = DialProgress::default();
    let dial = unless_pausing(&mut elected.refused, dialled(&master, &progress));
    if within(PAUSE, dial).await.flatten().is_some() {
        sentinels.followed.set(&elected.address);
    }
}
