//! Setup checks: a layer inspects its first requests for signs of a wrong setup.
//!
//! The checks run only if an observer receives their warnings. A check ends after the first requests, or as soon as it
//! has warned or has nothing to find. A check that has ended costs one or two relaxed loads per request.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, request::Parts};

use crate::check::{Charge, Check};
use crate::key::{Key, KeyError, KeyFault, KeyOrigin, MissingKey};
use crate::observe::{Event, Observer, Once, Warning};
use crate::{limiter::Limiter, runtime::random::RandomState};

/// Number of inspected requests: enough that a real service has seen two client addresses, few enough that warnings
/// come early.
const REQUESTS: u32 = 1_000;

/// Checks whether the keys of one extractor are the clients' addresses.
#[derive(Debug)]
pub(super) struct KeySetupCheck {
    /// Requests still to be inspected for a proxy's header, if the peer address is charged.
    forwarded: Countdown,
    /// Requests still to be inspected for a second address.
    one_address: Countdown,
    /// A hash of the first address; 0 before the first one.
    first: AtomicU64,
    no_peer: Once,
    no_header: Once,
}

impl Default for KeySetupCheck {
    fn default() -> Self {
        let [forwarded, one_address] = [REQUESTS; 2].map(Countdown::new);
        Self { forwarded, one_address, first: AtomicU64::new(0), no_peer: Once::default(), no_header: Once::default() }
    }
}

impl KeySetupCheck {
    /// Inspects one request and the key that was extracted from it.
    #[inline]
    pub(super) fn inspect(
        &self,
        origin: impl Fn() -> KeyOrigin,
        missing: MissingKey,
        parts: &Parts,
        extracted: &Result<Option<Key>, KeyError>,
        observer: &dyn Observer,
    ) {
        match extracted {
            // A request that is rejected without a peer address is reported as a refusal instead.
            Err(KeyError(KeyFault::NoPeerAddress)) if missing != MissingKey::Reject && self.no_peer.claim() => {
                observer.on_event(&Event::of_warning(Warning::no_peer_address()));
            }
            Err(KeyError(KeyFault::MissingHeader(header)))
                if origin() == KeyOrigin::Forwarded && self.no_header.claim() =>
            {
                observer.on_event(&Event::of_warning(Warning::forwarded_header_missing(header.as_str())));
            }
            Ok(Some(key)) if !(self.forwarded.is_over() && self.one_address.is_over()) => {
                self.inspect_key(origin(), parts, key, observer);
            }
            _ => {}
        }
    }

    #[cold]
    fn inspect_key(&self, origin: KeyOrigin, parts: &Parts, key: &Key, observer: &dyn Observer) {
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
                    observer.on_event(&Event::of_warning(Warning::forwarded_header(header)));
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
            observer.on_event(&Event::of_warning(Warning::one_address(REQUESTS)));
        }
    }
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// The name of a header in which proxies send the client's address, if the request has one.
fn forwarded_header(headers: &HeaderMap) -> Option<&'static str> {
    let names = ["forwarded", "x-forwarded-for", "x-real-ip", "cf-connecting-ip", "true-client-ip"];
    names.into_iter().find(|&name| headers.contains_key(name))
}

/// Checks whether a layer around this layer has charged the same policy and key.
#[derive(Debug)]
pub(super) struct StackSetupCheck(Countdown);

impl Default for StackSetupCheck {
    fn default() -> Self {
        Self(Countdown::new(REQUESTS))
    }
}

/// The charges of all outer layers, in the extensions of the request.
#[derive(Clone)]
struct Charged(Arc<Vec<(Limiter, Vec<Charge>)>>);

impl StackSetupCheck {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Warns if an outer layer has charged a policy and key of `check`, and adds the charges of `check` to the
    /// extensions for inner layers.
    #[cold]
    pub(super) fn inspect(&self, parts: &mut Parts, limiter: &Limiter, check: &Check, observer: &dyn Observer) {
        self.0.count();
        let mut charged = parts.extensions.remove::<Charged>().map_or_else(Vec::new, |charged| (*charged.0).clone());
        let same = |one: &Charge, other: &Charge| {
            one.cost > 0 && other.cost > 0 && one.key == other.key && one.policy.counts_with(&other.policy)
        };
        let outer = charged.iter().filter(|(other, _)| other.shares_store(limiter)).flat_map(|(_, charges)| charges);
        let twice = outer.into_iter().find(|outer| check.charges().iter().any(|charge| same(outer, charge)));
        if let Some(Charge { policy, .. }) = twice
            && self.0.end()
        {
            observer.on_event(&Event::of_warning(Warning::charged_twice(policy.name())));
        }
        charged.push((limiter.clone(), check.charges().to_vec()));
        parts.extensions.insert(Charged(Arc::new(charged)));
    }
}

/// The number of requests still to be inspected.
#[derive(Debug)]
pub(super) struct Countdown(AtomicU32);

impl Countdown {
    pub(super) const fn new(requests: u32) -> Self {
        Self(AtomicU32::new(requests))
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Counts a request; returns whether it is the last one.
    pub(super) fn count(&self) -> bool {
        let down = |left: u32| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, down) == Ok(1)
    }

    /// Ends the countdown; returns whether this call has ended it.
    pub(super) fn end(&self) -> bool {
        !self.is_over() && self.0.swap(0, Ordering::Relaxed) > 0
    }
}
