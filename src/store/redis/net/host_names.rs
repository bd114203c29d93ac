//! Looks host names up.
//!
//! The resolver of the operating system blocks a thread until a server of names answers or for ten seconds and more,
//! and nothing ends it earlier. Dials are given up and begin again meanwhile. If each of them took one of the threads
//! that a runtime has for blocking work, the application could soon read no file and look up no name. So look-ups have
//! threads of their own, and dials share them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::{collections::BTreeMap, io, thread, time::Duration};

use tokio::{sync::watch, time::Instant};

/// How long dials share a look-up before another one begins beside it. Its packet may be lost, and resolvers wait for
/// about five seconds before they send it again.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most look-ups of a name at the same time: enough for about one packet a second while no server of names answers.
const MOST: usize = 6;

static HOST_NAMES: LazyLock<Arc<HostNames>> =
    LazyLock::new(|| HostNames::new(|host| Ok((host, 0).to_socket_addrs()?.collect())));

/// The addresses of a host.
pub(super) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    HOST_NAMES.look_up(host, port).await
}

/// Finds the addresses of a host, with any port. Blocks its thread.
type Resolve = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The host names that are being looked up.
struct HostNames {
    resolve: Box<Resolve>,
    names: Mutex<BTreeMap<String, HostName>>,
}

#[derive(Default)]
struct HostName {
    /// Look-ups that have not ended.
    running: usize,
    /// When the newest of them began. `None` if another one has ended since then.
    newest: Option<Instant>,
    /// What the look-up finds that ends first.
    found: watch::Sender<Option<Addresses>>,
}

/// The addresses, or the kind and the text of the error.
type Addresses = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// A look-up on its thread. When it is dropped, also by a panic, all dials that wait for the name get its result.
struct HostLookUp {
    names: Arc<HostNames>,
    name: String,
    /// `None` after a panic.
    found: Option<Addresses>,
}

impl HostNames {
    fn new(resolve: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { resolve: Box::new(resolve), names: Mutex::default() })
    }

    async fn look_up(self: &Arc<Self>, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut found = self.join(host)?;
        let found = found.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        let found = found.ok_or_else(|| io::Error::other("the look-up of the host has panicked"))?;
        let mut addresses = found.map_err(|(kind, text)| io::Error::new(kind, text))?;
        addresses.iter_mut().for_each(|address| address.set_port(port));
        Ok(addresses)
    }

    /// Begins a look-up, unless one has just begun or as many as may be are running. Returns what will be found.
    fn join(self: &Arc<Self>, host: &str) -> io::Result<watch::Receiver<Option<Addresses>>> {
        let mut names = self.lock();
        let name = names.entry(host.to_owned()).or_default();
        let is_shared = name.newest.is_some_and(|newest| newest.elapsed() < PATIENCE);
        if !is_shared && name.running < MOST {
            match self.begin(host.to_owned()) {
                Ok(()) => (name.running, name.newest) = (name.running + 1, Some(Instant::now())),
                Err(error) if name.running == 0 => {
                    names.remove(host);
                    return Err(error);
                }
                // No thread can be made, but another look-up is running.
                Err(_) => {}
            }
        }
        Ok(name.found.subscribe())
    }

    fn begin(self: &Arc<Self>, host: String) -> io::Result<()> {
        let names = Arc::clone(self);
        let run = move || {
            let mut look_up = HostLookUp { names, name: host, found: None };
            let found = (look_up.names.resolve)(&look_up.name);
            look_up.found = Some(found.map_err(|error| (error.kind(), error.to_string())));
        };
        thread::Builder::new().name("tollgate-dns".to_owned()).spawn(run).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, HostName>> {
        // A panic under the lock leaves valid names.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostLookUp {
    fn drop(&mut self) {
        let mut names = self.names.lock();
        let Some(name) = names.get_mut(&self.name) else { return };
        (name.running, name.newest) = (name.running - 1, None);
        let found = std::mem::take(&mut name.found);
        if name.running == 0 {
            names.remove(&self.name);
        }
        drop(names);
        if let Some(addresses) = self.found.take() {
            found.send_replace(Some(addresses));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU8, Ordering},
        mpsc,
    };

    use tokio::time::timeout;

    use super::*;

    /// Names whose look-ups wait for a message each. The first one finds the first address.
    fn blocked() -> (mpsc::Sender<()>, Arc<HostNames>) {
        let (answer, answers) = mpsc::channel();
        let (answers, calls) = (Mutex::new(answers), AtomicU8::new(0));
        let names = HostNames::new(move |_| {
            let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
            answers.lock().unwrap().recv().map_err(io::Error::other)?;
            Ok(vec![SocketAddr::from(([127, 0, 0, number], 0))])
        });
        (answer, names)
    }

    fn running(names: &HostNames) -> usize {
        names.lock().values().map(|name| name.running).sum()
    }

    /// Dials of several ports, each of which is given up after some milliseconds.
    async fn give_up(names: &Arc<HostNames>, dials: u16, after_ms: u64) {
        for dial in 0..dials {
            let dial = names.look_up("redis.example", 6379 + dial % 6);
            assert!(timeout(Duration::from_millis(after_ms), dial).await.is_err());
        }
    }

    /// The result of a dial that waits when the resolver answers one look-up.
    async fn found(names: &Arc<HostNames>, answer: &mpsc::Sender<()>) -> Vec<SocketAddr> {
        let answered = async { answer.send(()).unwrap() };
        tokio::join!(names.look_up("redis.example", 6379), answered).0.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn dials_that_are_given_up_share_a_look_up_and_its_end_lets_the_next_one_begin() {
        let (answer, names) = blocked();
        give_up(&names, 20, 10).await;
        for number in [1, 2] {
            assert_eq!(found(&names, &answer).await, [SocketAddr::from(([127, 0, 0, number], 6379))]);
        }
        assert!(names.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_nobody_resolves_takes_few_threads_however_many_dials_are_given_up() {
        let (answer, names) = blocked();
        give_up(&names, 2, 400).await;
        assert_eq!(running(&names), 1);
        give_up(&names, 100, 400).await;
        assert_eq!(running(&names), MOST);
        found(&names, &answer).await;
        assert_eq!(running(&names), MOST - 1);
    }

    #[tokio::test]
    async fn a_look_up_that_panics_fails_its_dial_and_no_other_and_an_address_is_not_looked_up() {
        let names = HostNames::new(|_| panic!("the test wants a panic"));
        for _ in 0..2 {
            let error = names.look_up("redis.example", 6379).await.unwrap_err();
            assert_eq!(error.to_string(), "the look-up of the host has panicked");
        }
        assert_eq!(names.look_up("127.0.0.1", 1).await.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 1))]);
    }
}
