//! What a layer looks for in its first requests: signs that it is not set up as it was meant.
//!
//! Only where an observer could hear of it. After the first requests, or as soon as a sign is seen or can be ruled out,
//! what is left is one relaxed load for each kind.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use http::{HeaderMap, request::Parts};

use crate::{
    check::{Charge, Check},
    key::{Key, KeyError, KeyOrigin, MissingKey},
    limiter::Limiter,
    observe::{Observer, Once, Warning},
};

/// So many requests that something may be looked for.
#[derive(Debug)]
pub(crate) struct Countdown(AtomicU32);

impl Countdown {
    pub(crate) const fn new(requests: u32) -> Self {
        Self(AtomicU32::new(requests))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Counts a request; tells whether it is the last one.
    pub(crate) fn count(&self) -> bool {
        let down = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down) == Ok(1)
    }

    /// Ends it; tells whether it was not over before.
    fn end(&self) -> bool {
        !self.is_over() && self.0.swap(0, Ordering::Relaxed) > 0
    }
}

/// Many enough that clients of a real service come from two addresses, few enough that it is told soon.
const REQUESTS: u32 = 1_000;

/// What is looked for in the keys that one extractor finds.
#[derive(Debug)]
pub(crate) struct KeyLookout {
    forwarded: Countdown,
    one_address: Countdown,
    /// A hash of the first address; 0: there was none yet.
    first: AtomicU64,
    no_peer: Once,
    no_header: Once,
}

impl Default for KeyLookout {
    fn default() -> Self {
        let [forwarded, one_address] = [REQUESTS; 2].map(Countdown::new);
        Self { forwarded, one_address, first: AtomicU64::new(0), no_peer: Once::default(), no_header: Once::default() }
    }
}

impl KeyLookout {
    /// Looks at one request and what was found in it.
    #[inline]
    pub(crate) fn look(
        &self,
        origin: impl Fn() -> KeyOrigin,
        missing: MissingKey,
        parts: &Parts,
        found: &Result<Option<Key>, KeyError>,
        observer: &dyn Observer,
    ) {
        match found {
            // What is rejected is told of as a refusal.
            Err(KeyError::NoPeerAddress) if missing != MissingKey::Reject && self.no_peer.claim() => {
                observer.on_warning(&Warning::NoPeerAddress);
            }
            Err(KeyError::MissingHeader(header)) if origin() == KeyOrigin::Forwarded && self.no_header.claim() => {
                observer.on_warning(&Warning::ForwardedHeaderMissing { header: header.to_string() });
            }
            Ok(Some(key)) if !(self.forwarded.is_over() && self.one_address.is_over()) => {
                self.look_at_key(origin(), parts, key, observer);
            }
            _ => {}
        }
    }

    #[cold]
    fn look_at_key(&self, origin: KeyOrigin, parts: &Parts, key: &Key, observer: &dyn Observer) {
        match origin {
            KeyOrigin::Other => {
                self.forwarded.end();
                self.one_address.end();
                return;
            }
            KeyOrigin::Forwarded => {
                self.forwarded.end();
            }
            KeyOrigin::Peer if self.forwarded.is_over() => {}
            KeyOrigin::Peer => {
                self.forwarded.count();
                if let Some(header) = forwarded_header(&parts.headers)
                    && self.forwarded.end()
                {
                    observer.on_warning(&Warning::ForwardedHeader { header });
                }
            }
        }
        if self.one_address.is_over() {
            return;
        }
        let hash = HASHER.hash_one(key).max(1);
        let first = self.first.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|first| first != hash) {
            self.one_address.end();
        } else if self.one_address.count() {
            observer.on_warning(&Warning::OneAddress { requests: REQUESTS });
        }
    }
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A header by which proxies say for whom they ask.
fn forwarded_header(headers: &HeaderMap) -> Option<&'static str> {
    let names = ["forwarded", "x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip"];
    names.into_iter().find(|&name| headers.contains_key(name))
}

/// What is looked for in the layers around a layer: one that has charged the same.
#[derive(Debug)]
pub(crate) struct StackLookout(Countdown);

impl Default for StackLookout {
    fn default() -> Self {
        Self(Countdown::new(REQUESTS))
    }
}

/// In a request's extensions: what the layers around have charged.
#[derive(Clone)]
struct Charged(Arc<Vec<(Limiter, Vec<Charge>)>>);

impl StackLookout {
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Looks for what `check` is about to charge among what has been charged, and leaves word of it.
    #[cold]
    pub(crate) fn look(&self, parts: &mut Parts, limiter: &Limiter, check: &Check, observer: &dyn Observer) {
        self.0.count();
        let mut charged = parts.extensions.remove::<Charged>().map_or_else(Vec::new, |charged| (*charged.0).clone());
        let same = |one: &Charge, other: &Charge| {
            one.cost > 0 && other.cost > 0 && one.key == other.key && one.policy.counts_with(&other.policy)
        };
        let before = charged.iter().filter(|(other, _)| other.shares_store(limiter)).flat_map(|(_, charges)| charges);
        let twice = before.into_iter().find(|before| check.charges().iter().any(|charge| same(before, charge)));
        if let Some(Charge { policy, .. }) = twice
            && self.0.end()
        {
            observer.on_warning(&Warning::ChargedTwice { policy: policy.name().to_owned() });
        }
        charged.push((limiter.clone(), check.charges().to_vec()));
        parts.extensions.insert(Charged(Arc::new(charged)));
    }
}
