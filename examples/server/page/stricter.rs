//! What a stricter limit would have refused: the requests of the last hour, checked once more by a shadow policy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tollgate::clock::{Clock, SystemClock};
use tollgate::{Key, Limiter, MemoryStore, Policy, observe::Fingerprint};

use crate::page::history::{HOUR_US, Judged, Request};
use crate::page::record;

const HOUR: Duration = Duration::from_micros(HOUR_US);
const MINUTES: usize = 60;
/// Requests that the page can mark.
const MOST_MARKED: usize = 5_000;

/// The policy with another limit, as a shadow policy. Bans are left out.
pub(super) fn shadow_of(policy: &Policy, limit: u64) -> Result<Policy, String> {
    if limit == 0 || limit > policy.limit() {
        return Err(format!("A stricter limit is a number from 1 to {}.\n", policy.limit()));
    }
    let window = policy.window().unwrap_or(Duration::ZERO);
    if window > HOUR {
        // What its windows contain at the start of the hour is not kept, so too few requests would be refused.
        return Err("A stricter limit is judged for windows of an hour at most.\n".to_owned());
    }
    let mut shadow = Policy::new(policy.name(), limit, window)
        .map_err(|error| format!("{error}\n"))?
        .with_algorithm(policy.algorithm())
        .with_denials_counted(policy.denials_counted())
        .with_shadow(true);
    if let Some(resolution) = policy.resolution() {
        shadow = shadow.with_resolution(resolution);
    }
    // A burst that was not set follows the limit.
    if let Some(burst) = policy.burst().filter(|burst| *burst != policy.limit()) {
        shadow = shadow.with_burst(burst);
    }
    shadow.validated().map_err(|error| format!("{error}\n"))
}

/// Stands at the time of the request that is checked.
#[derive(Clone, Debug, Default)]
struct TimeOfRequest(Arc<AtomicU64>);

impl Clock for TimeOfRequest {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Checks past requests in their order, at their times.
struct Replay {
    limiter: Limiter,
    time: TimeOfRequest,
    policy: Policy,
}

impl Replay {
    fn under(policy: Policy) -> Self {
        let time = TimeOfRequest::default();
        Self { limiter: Limiter::new(MemoryStore::new().with_clock(time.clone())), time, policy }
    }

    fn refuses(&self, request: &Request) -> bool {
        self.time.0.store(request.at_us, Ordering::Relaxed);
        // A cost above the limit can never pass; a check of it is an error.
        let decision = self.limiter.try_check(Key::from(request.key), &self.policy, request.cost);
        decision.map_or(true, |decision| decision.policies().iter().any(|standing| standing.would_deny))
    }
}

/// Numbers of requests.
#[derive(Clone, Copy, Default)]
struct Tally {
    all: u64,
    /// What the limit in force has refused.
    refused: u64,
    /// What the stricter limit would have refused.
    stricter: u64,
    /// What was admitted, and would have been refused.
    more: u64,
}

impl Tally {
    fn add(&mut self, request: &Request, is_stricter: bool) {
        self.all += 1;
        self.refused += u64::from(request.is_refused);
        self.stricter += u64::from(is_stricter);
        self.more += u64::from(is_stricter && !request.is_refused);
    }

    /// What stays admitted, what the stricter limit alone would have refused, and what was refused.
    fn parts(self) -> [u64; 3] {
        [self.all - self.refused - self.more, self.more, self.refused]
    }

    fn json(&self) -> Value {
        json!({ "requests": self.all, "refused": self.refused, "stricter": self.stricter, "more": self.more })
    }
}

/// The answer for the page: the numbers of the last hour, of all clients, of the visitor and of the chosen client, in
/// each of its minutes, and the requests of the chosen client that the stricter limit alone would have refused.
pub(super) fn replay(judged: &Judged, shadow: Policy, visitor: Fingerprint, client: Fingerprint) -> Value {
    let now = SystemClock.now_us();
    let hour = now.saturating_sub(HOUR_US);
    let limit = shadow.limit();
    let replay = Replay::under(shadow);
    let (mut all, mut of_visitor, mut of_client) = (Tally::default(), Tally::default(), Tally::default());
    let mut minutes = [Tally::default(); MINUTES];
    let mut marked = Vec::new();
    for request in &judged.requests {
        let is_refused = replay.refuses(request);
        // Older ones only count.
        let Some(age) = request.at_us.checked_sub(hour) else { continue };
        all.add(request, is_refused);
        if request.key == visitor {
            of_visitor.add(request, is_refused);
        }
        if request.key == client {
            of_client.add(request, is_refused);
            if is_refused && !request.is_refused {
                marked.push(record::millis(request.at_us));
            }
        }
        let minute = usize::try_from(age / (HOUR_US / MINUTES as u64)).unwrap_or(MINUTES);
        minutes[minute.min(MINUTES - 1)].add(request, is_refused);
    }
    let newest = marked.split_off(marked.len().saturating_sub(MOST_MARKED));
    json!({
        "limit": limit,
        "hour": record::millis(hour),
        "since": (judged.complete_from_us > hour).then(|| record::millis(judged.complete_from_us)),
        "all": all.json(),
        "visitor": of_visitor.json(),
        "client": of_client.json(),
        "minutes": minutes.map(Tally::parts).to_vec(),
        "marked": newest,
    })
}
