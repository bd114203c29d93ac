//! Asks sentinels once a second which server is the master.
//!
//! When a failover is requested, sentinels promote a replica and leave the old master as it is for about ten seconds.
//! Until then it accepts writes, and all of them are lost when it becomes a replica. So the store does not wait for
//! the error of a replica: it leaves a master as soon as most sentinels name another one.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use super::{
    endpoint::Endpoint,
    master_search::{dialled, named_by},
    progress::DialProgress,
    sentinel::Sentinels,
    wire::Wire,
};
use crate::runtime::deadline::within;

/// Time between two questions, and the longest time of an answer.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that asks the sentinels. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct MasterWatch(JoinHandle<()>);

/// A sentinel, and the connection to it while it answers.
struct Link {
    sentinel: Endpoint,
    connection: Option<MultiplexedConnection>,
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
    let link = |sentinel: &Endpoint| Link { sentinel: sentinel.clone(), connection: None };
    let mut links: Vec<Link> = Vec::new();
    loop {
        sleep(PAUSE).await;
        if !sentinels.followed.is_question_due(PAUSE / 2) {
            // Another runtime asks, so the connections of this one are not needed.
            links.clear();
            continue;
        }
        if links.is_empty() {
            links = sentinels.sentinels.iter().map(link).collect();
        }
        let named;
        (links, named) = ask_all(links, sentinels.name()).await;
        follow(&sentinels, &named).await;
    }
}

/// The links, and the servers that the sentinels name.
async fn ask_all(links: Vec<Link>, name: &str) -> (Vec<Link>, Vec<(String, u16)>) {
    let mut questions = JoinSet::new();
    for mut link in links {
        let name = name.to_owned();
        questions.spawn(async move {
            let named = within(PAUSE, link.ask(&name)).await.flatten();
            if named.is_none() {
                link.connection = None;
            }
            (link, named)
        });
    }
    let (mut links, mut servers) = (Vec::new(), Vec::new());
    while let Some(answer) = questions.join_next().await {
        // Otherwise the runtime is shutting down.
        if let Ok((link, named)) = answer {
            links.push(link);
            servers.extend(named);
        }
    }
    (links, servers)
}

impl Link {
    async fn ask(&mut self, name: &str) -> Option<(String, u16)> {
        if self.connection.is_none() {
            self.connection = Some(Wire::dial(&self.sentinel, &DialProgress::default()).await.ok()?.connection);
        }
        named_by(self.connection.as_mut()?, name).await.ok()
    }
}

/// Follows the master that most sentinels name, if it has taken office: connections to another one end.
async fn follow(sentinels: &Sentinels, named: &[(String, u16)]) {
    let votes = |server: &(String, u16)| named.iter().filter(|other| *other == server).count();
    let Some((host, port)) = named.iter().find(|server| sentinels.are_most(votes(server))) else { return };
    let master = sentinels.master_at(host.clone(), *port);
    let address = master.info.addr().to_string();
    if !sentinels.followed.is(&address)
        && within(PAUSE, dialled(&master, &DialProgress::default())).await.is_some_and(|wire| wire.is_ok())
    {
        sentinels.followed.set(&address);
    }
}
