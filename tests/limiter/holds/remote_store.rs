//! A store that answers changes of holds late, never, or not at all.

use std::sync::{Arc, Mutex};
use std::{future, time::Duration};

use tokio::time::timeout;
use tollgate::store::{Answer, Charge, CountChange, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, MemoryStore, Policy};

/// A memory store that has to be awaited, like one behind a network.
#[derive(Clone, Debug)]
pub(super) struct RemoteStore {
    memory: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    network: Network,
    /// The changes that the store has received.
    received: Vec<HoldChange>,
}

/// What becomes of a change of a hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Network {
    Well,
    /// Nothing is sent.
    Down,
    /// The change is made, and its answer is lost.
    LosesAnswers,
    /// The change is made, and nothing is answered.
    Mute,
    /// Nothing is answered.
    Silent,
    Panics,
}

impl RemoteStore {
    pub(super) fn new(memory: MemoryStore) -> Self {
        Self { memory, state: Arc::new(Mutex::new(State { network: Network::Well, received: Vec::new() })) }
    }

    pub(super) fn is(&self, network: Network) {
        self.state.lock().unwrap().network = network;
    }

    fn network(&self) -> Network {
        self.state.lock().unwrap().network
    }

    /// The changes that the store has received.
    pub(super) fn received(&self) -> Vec<HoldChange> {
        self.state.lock().unwrap().received.clone()
    }

    /// Waits until the store has received that many changes.
    pub(super) async fn receives(&self, number: usize) {
        let received = async {
            while self.received().len() < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), received).await.expect("the store receives the change");
    }

    async fn change(self, hold: Charge, change: HoldChange) -> Result<SettleAnswer, Error> {
        let down = |message: &str| Err(Error::new(ErrorKind::Unavailable, message));
        tokio::task::yield_now().await;
        let network = self.network();
        // A change has an effect before a test sees that it was received.
        let answer = match network {
            Network::Well | Network::LosesAnswers | Network::Mute => Some(self.memory.change_hold(&hold, change)),
            Network::Down | Network::Silent | Network::Panics => None,
        };
        if !matches!(network, Network::Down | Network::Silent) {
            self.state.lock().unwrap().received.push(change);
        }
        match network {
            Network::Well => match answer {
                Some(Answer::Ready(result)) => result,
                _ => panic!("a memory store answers at once"),
            },
            Network::Down => down("connection refused"),
            Network::LosesAnswers => down("connection reset").map_err(Error::charge_unknown),
            Network::Mute | Network::Silent => future::pending().await,
            Network::Panics => panic!("a store that panics"),
        }
    }
}

impl Store for RemoteStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.memory.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        Answer::pending(self.clone().change(hold.clone(), change))
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        let (store, key, policy) = (self.clone(), key.clone(), policy.clone());
        Answer::pending(async move {
            tokio::task::yield_now().await;
            if !matches!(store.network(), Network::Well) {
                return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
            }
            match store.memory.change_count(&key, &policy, change) {
                Answer::Ready(result) => result,
                Answer::Pending(pending) => pending.await,
            }
        })
    }
}
