//! A load that moves between processes: how much of the limit is used in a short window.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::*;
use crate::support::random::Random;

const PROCESSES: u64 = 4;
const LIMIT: u64 = 10_000;
/// Twice the limit.
const PER_MS: u64 = 2 * LIMIT / 1_000;
const SECONDS: u64 = 12;

/// Units that were admitted in each millisecond, while the load moves from process to process.
async fn admitted_in_each_ms(policy: &Policy, seed: u64) -> Vec<u64> {
    let (remote, _) = Remote::new(2 * MS);
    let limiters: Vec<_> = (0..PROCESSES).map(|_| remote.limiter()).collect();
    let admitted = Arc::new(Mutex::new(vec![0; (SECONDS * 1_000) as usize]));
    let (start, mut random, mut checks) = (Instant::now(), Random(seed), JoinSet::new());
    let (mut process, mut moves_at) = (0, 0);
    for ms in 0..SECONDS * 1_000 {
        if ms >= moves_at {
            process = (process + 1 + random.below(PROCESSES - 1)) % PROCESSES;
            moves_at = ms + 100 + random.below(600);
        }
        for _ in 0..PER_MS {
            let check = limiters[process as usize].check(KEY, policy, 1);
            let admitted = Arc::clone(&admitted);
            checks.spawn(async move {
                if check.await.unwrap().is_allowed() {
                    let at = start.elapsed().as_millis() as usize;
                    admitted.lock().unwrap().get_mut(at).into_iter().for_each(|units| *units += 1);
                }
            });
        }
        sleep(MS).await;
        while checks.try_join_next().is_some() {}
    }
    checks.join_all().await;
    std::mem::take(&mut *admitted.lock().unwrap())
}

/// The parts of the limit that windows of a second have seen, in thousandths: of the emptiest tenth the fullest one,
/// and the emptiest and the fullest of all.
fn windows(admitted: &[u64]) -> [u64; 3] {
    // The first windows see the start of the load.
    let mut seen: Vec<u64> = admitted[1_000..].windows(1_000).map(|window| window.iter().sum()).collect();
    seen.sort_unstable();
    [seen[seen.len() / 10], seen[0], seen[seen.len() - 1]].map(|units| units * 1_000 / LIMIT)
}

/// docs/leases.md names the figure.
#[tokio::test(start_paused = true)]
async fn windows_of_a_second_are_used_to_nine_tenths_while_load_moves_between_processes() {
    let plain = Policy::per_second("p", LIMIT).unwrap().with_resolution(MS);
    let leased = plain.clone().with_lease(1_000);
    for seed in 0..2 {
        let without = windows(&admitted_in_each_ms(&plain, seed).await);
        let with = windows(&admitted_in_each_ms(&leased, seed).await);
        println!("seed {seed}: of 1 000, worst tenth, worst and best: {with:?} with a lease, {without:?} without");
        assert!(with[2] <= 1_010, "law 1, as far as the ways of the answers differ: {with:?}");
        assert!(with[0] >= 900, "the worst tenth uses {} of 1 000", with[0]);
    }
}
