//! The master that a store follows behind sentinels. Connections to another server end when it is known.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{future::pending, time::Duration};

use tokio::time::{Instant, sleep};

/// The time between two looks at whether a tenure has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The master that a store follows. The pools of all runtimes share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The hash of the master's address, or 0 if none is known.
    master: AtomicU64,
    /// When the sentinels may be asked again.
    next_question: Mutex<Option<Instant>>,
}

/// The time in which a server is the master that the store follows. Each connection to a master has one.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    followed: Followed,
    server: u64,
}

impl Followed {
    /// Whether the store follows the master at this address.
    pub(crate) fn is(&self, address: &str) -> bool {
        self.0.master.load(Ordering::Acquire) == hash(address)
    }

    /// Makes the server at this address the master. The tenures of all other servers end.
    pub(crate) fn set(&self, address: &str) -> Tenure {
        let server = hash(address);
        self.0.master.store(server, Ordering::Release);
        Tenure { followed: self.clone(), server }
    }

    /// The tenure of the present master.
    pub(crate) fn tenure(&self) -> Tenure {
        Tenure { followed: self.clone(), server: self.0.master.load(Ordering::Acquire) }
    }

    /// Whether it is time to ask the sentinels. If so, it is not time again before `pause` has passed.
    pub(crate) fn is_question_due(&self, pause: Duration) -> bool {
        let now = Instant::now();
        // A panic under the lock leaves a valid time.
        let mut next = self.0.next_question.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = next.is_none_or(|next| next <= now);
        if is_due {
            *next = Some(now + pause);
        }
        is_due
    }
}

impl Tenure {
    /// Whether the store follows another master now.
    pub(crate) fn has_ended(&self) -> bool {
        self.followed.0.master.load(Ordering::Acquire) != self.server
    }

    /// Waits until the store follows another master. Never ends if it followed none.
    pub(crate) async fn end(&self) {
        if self.server == 0 {
            pending::<()>().await;
        }
        while !self.has_ended() {
            sleep(LOOK_AGAIN).await;
        }
    }
}

fn hash(address: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish().max(1)
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::store::redis::net::first_dial::DialProgress;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_dial_is_overtaken_when_the_followed_master_has_changed_since_its_start() {
        let (followed, early, late) = (Followed::default(), DialProgress::default(), DialProgress::default());
        early.begins_in(followed.tenure());
        followed.set("former");
        late.begins_in(followed.tenure());
        assert!(followed.is("former") && timeout(SECOND, late.is_overtaken()).await.is_err());
        followed.set("elected");
        assert!(!followed.is("former") && timeout(SECOND, late.is_overtaken()).await.is_ok());
        assert!(timeout(SECOND, early.is_overtaken()).await.is_err(), "no master was known");
    }

    #[tokio::test(start_paused = true)]
    async fn of_all_runtimes_one_asks_the_sentinels_in_each_pause() {
        let followed = Followed::default();
        for _ in 0..3 {
            assert!(followed.is_question_due(SECOND) && !followed.clone().is_question_due(SECOND));
            advance(SECOND).await;
        }
    }
}
