//! The whole life of many connections, with resets in every phase: HTTP/1.1, HTTP/2, server-sent events, WebSockets
//! and gRPC, on both stores. Afterwards every slot is free, and the units that are spent are what the
//! handlers have put on their bills. Only what the share has admitted during an outage may be spent in part: what the
//! store may have charged, although its answer was lost, is never sent again.
//!
//! Observers panic meanwhile, the store has outages in which the local fallback judges, and runtimes end with their
//! connections.

mod client;
mod runtimes;
mod service;
mod stores;
mod web_socket;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, sync::Arc};

use tokio::{runtime, task::JoinSet, time::timeout};
use tollgate::Limiter;

use self::client::{Client, Outcome, PROTOCOLS};
use self::runtimes::Runtimes;
use self::service::{Ledger, SLOTS, Sums, router, slots, units};
use self::stores::{Outages, Panics, Tested};
use crate::support::{print_line, random::Random, seed::seed};

/// Connections that are open at the same time.
const CLIENTS: u64 = 60;

#[test]
fn law_15_connections_of_five_protocols_with_resets_in_every_phase_leave_nothing_behind_in_memory() {
    lives(Tested::memory(), 300);
}

#[test]
fn law_15_connections_of_five_protocols_with_resets_in_every_phase_leave_nothing_behind_on_redis() {
    lives(Tested::redis(), 300);
}

#[test]
#[ignore = "takes minutes: tests/run --long"]
fn long_law_15_sixty_thousand_connections_of_each_protocol_leave_nothing_behind_in_memory() {
    lives(Tested::memory(), 60_000);
}

#[test]
#[ignore = "takes minutes: tests/run --long"]
fn long_law_15_sixty_thousand_connections_of_each_protocol_leave_nothing_behind_on_redis() {
    lives(Tested::redis(), 60_000);
}

/// Runs `count` connections of each protocol, and looks at what they have left.
fn lives(tested: Tested, count: u64) {
    stores::silence_panics();
    let seed = seed();
    let limiter = tested.limiter().with_observer(Panics::default());
    let ledger = Ledger::default();
    let servers = Runtimes::start(&router(&limiter, &ledger));
    let outages = Outages::start(tested.clone());
    let clients = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begun = Instant::now();
    let (all, next) = (count * PROTOCOLS.len() as u64, Arc::new(AtomicU64::new(0)));
    let (early, outcomes) = clients.block_on(async {
        let mut tasks = JoinSet::new();
        let address = servers.address();
        for _ in 0..CLIENTS {
            let next = Arc::clone(&next);
            tasks.spawn(async move {
                let mut outcomes = [0_u64; Outcome::COUNT];
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= all {
                        return outcomes;
                    }
                    let mut client = Client::new(address, Random(seed.wrapping_mul(all).wrapping_add(number)));
                    let life = client.live(PROTOCOLS[(number % PROTOCOLS.len() as u64) as usize]);
                    let outcome = timeout(Duration::from_secs(30), life).await.expect("a connection is stuck");
                    outcomes[outcome as usize] += 1;
                }
            });
        }
        // The first connections allocate what the process keeps.
        while next.load(Ordering::Relaxed) < all / 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let early = resident_kb();
        let mut sums = [0; Outcome::COUNT];
        while let Some(outcomes) = tasks.join_next().await {
            sums.iter_mut().zip(outcomes.unwrap()).for_each(|(sum, more)| *sum += more);
        }
        (early, sums)
    });
    let late = resident_kb();
    let took = begun.elapsed();
    let outages = outages.stop();
    let ended = servers.stop();
    let waited = Instant::now();
    clients.block_on(async {
        for protocol in PROTOCOLS {
            let left = async || left(&limiter, protocol.name(), &ledger).await;
            loop {
                let (taken, above) = left().await;
                let lost = if tested.answers_are_lost() { ledger.of(protocol.name()).by_share } else { 0 };
                if taken == 0 && (-lost..=0).contains(&above) {
                    break;
                }
                assert!(
                    waited.elapsed() < Duration::from_secs(20),
                    "{}: {taken} slots are taken, and the units spent are {above} above the bills",
                    protocol.name()
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    print_line(&format!(
        "{all} connections in {took:?}: {outcomes:?} ended as {:?}; {:?} units on the bills of requests that the \
         store and the share have admitted; {outages} outages; {ended} \
         runtimes ended; all free after {:?}; resident kB at a quarter {early}, at the end {late}",
        Outcome::ALL,
        ledger.total(),
        waited.elapsed(),
    ));
    // What the allocator keeps differs by some megabytes, and in a short run other tests of the process allocate too.
    let is_flat = late < early + (32 << 10);
    assert!(is_flat || count < 10_000, "memory grows with the connections: {early} kB, then {late} kB");
    assert!(outages > 0 && ended > 0, "a store without an outage, or runtimes that have not ended");
}

/// The slots of a protocol that are taken, and the units that are spent beyond those on its bills.
async fn left(limiter: &Limiter, protocol: &str, ledger: &Ledger) -> (u64, i64) {
    let free = limiter.peek(protocol, &slots()).await.ok().and_then(|decision| decision.available());
    let available = limiter.peek(protocol, &units()).await.ok().and_then(|decision| decision.available());
    let (Some(free), Some(available)) = (free, available) else { return (SLOTS, 0) };
    let spent = (units().limit() - available) as i64;
    let Sums { by_store, by_share } = ledger.of(protocol);
    (SLOTS - free, spent - by_store - by_share)
}

/// The memory of this process.
fn resident_kb() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok()).map_or(0, |pages| pages * 4)
}
