//! A slot that moves slowly between masters: its keys are with the old master, with the new one, or on both sides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{sync::Arc, thread};

use tokio::task::JoinSet;
use tollgate::store::{Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Policy, RedisStore, policy::HoldSettings};

use super::holds::{answer, available, change, check, hold};
use crate::support::cluster::{Cluster, plain_key};

/// Where the keys of a subject are during a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// There were none before the move.
    New,
    /// Only the count existed before the move, and is with the old master.
    CountAlone,
    /// All with the old master.
    Old,
    /// The count is with the new master, and the other key with the old one.
    CountMoved,
    /// The other key is with the new master, and the count with the old one.
    OtherMoved,
    /// All with the new master.
    Moved,
}

const PLACES: [Place; 6] =
    [Place::New, Place::CountAlone, Place::Old, Place::CountMoved, Place::OtherMoved, Place::Moved];

pub(super) async fn connected(cluster: &Cluster) -> RedisStore {
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(2));
    let store = builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    let start = Instant::now();
    while answer(store.ready()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    store
}

/// The slot of "foo", with the third master.
pub(super) fn slot(cluster: &Cluster) -> u16 {
    cluster.slot_of(&plain_key("foo", &Policy::per_hour("p", 1).unwrap())).0
}

/// Other subjects with keys in that slot.
fn subjects(cluster: &Cluster, count: usize) -> Vec<String> {
    let (slot, policy) = (slot(cluster), Policy::per_hour("p", 1).unwrap());
    let in_slot = |subject: &String| cluster.slot_of(&plain_key(subject.as_str(), &policy)).0 == slot;
    (0..).map(|number| format!("subject-{number}")).filter(in_slot).take(count).collect()
}

/// Moves one key from the third master to the first.
fn migrate(cluster: &Cluster, key: &str) {
    let (from, to) = (&cluster.nodes[2], &cluster.nodes[0]);
    let reply = from.command(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
    assert!(reply.is_empty(), "{key}: {reply}");
}

/// Begins a move of the slot from the third master to the first, with the keys of each subject in its place. The count
/// of a subject is the key of `policy`.
pub(super) fn begin_move(cluster: &Cluster, subjects: &[(String, Place)], policy: &Policy) {
    cluster.begin_move(slot(cluster), 2, 0);
    let keys = cluster.nodes[2].command(&format!("CLUSTER GETKEYSINSLOT {} 1000", slot(cluster)));
    for (subject, place) in subjects {
        let count = plain_key(subject.as_str(), policy);
        let keys = keys.lines().filter(|key| key.contains(&format!("{{{subject}}}")));
        let moves = |key: &str| match place {
            Place::New | Place::CountAlone | Place::Old => false,
            Place::CountMoved => key == count,
            Place::OtherMoved => key != count,
            Place::Moved => true,
        };
        keys.filter(|key| moves(key)).for_each(|key| migrate(cluster, key));
    }
}

async fn peek(store: &RedisStore, subject: &str, policy: &Policy) -> Verdict {
    check(store, &Check::new(subject, policy, 0)).await
}

/// A subject for each place.
pub(super) fn placed(cluster: &Cluster) -> Vec<(String, Place)> {
    subjects(cluster, PLACES.len()).into_iter().zip(PLACES).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_a_policy_with_a_ban_gets_verdicts_wherever_its_keys_are_during_a_move() {
    let policy = Policy::per_hour("b", 3).unwrap().ban_after(3, Duration::from_secs(600));
    bans_during_a_move(policy).await;
}

/// During a move, a ban that grows has the first duration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_a_policy_with_holds_and_a_ban_gets_verdicts_wherever_its_keys_are_during_a_move() {
    let policy = Policy::per_hour("b", 3).unwrap().ban_after(3, Duration::from_secs(600));
    bans_during_a_move(policy.with_holds(HoldSettings::new()).growing_to(Duration::from_secs(3_600))).await;
}

async fn bans_during_a_move(policy: Policy) {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let subjects = placed(&cluster);
    let one = async |subject: &str, cost| check(&store, &Check::new(subject, &policy, cost)).await;
    for (subject, place) in &subjects {
        if *place != Place::New {
            assert!(one(subject, 1).await.allowed);
        }
        if !matches!(place, Place::New | Place::CountAlone) {
            assert!(!one(subject, 3).await.allowed, "a denial that is counted");
        }
    }
    begin_move(&cluster, &subjects, &policy);
    let mut bans = Vec::new();
    for (subject, place) in &subjects {
        let spent = u64::from(*place != Place::New);
        for _ in spent..3 {
            assert!(one(subject, 1).await.allowed, "{place:?}");
        }
        let mut denials = u64::from(!matches!(place, Place::New | Place::CountAlone));
        loop {
            let denied = one(subject, 1).await;
            denials += 1;
            assert!(!denied.allowed && denials <= 3, "{place:?}: {denials} denials, {denied:?}");
            if denied.outcomes[0].ban_us > 0 {
                break;
            }
        }
        bans.push(denials);
    }
    assert_eq!(bans, [3; 6], "the denials before each ban");
    cluster.end_move(slot(&cluster), 2, 0);
    for (subject, place) in &subjects {
        let after = peek(&store, subject, &policy).await;
        assert!(after.outcomes[0].ban_us > 590_000_000, "{place:?}: {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_a_policy_with_holds_gets_verdicts_wherever_its_keys_are_during_a_move() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let policy = Policy::per_hour("h", 6).unwrap().with_holds(HoldSettings::new());
    let subjects = placed(&cluster);
    let one = async |subject: &str, cost| check(&store, &Check::new(subject, &policy, cost)).await.allowed;
    let mut open: Vec<Option<Charge>> = Vec::new();
    for (subject, place) in &subjects {
        if *place != Place::New {
            assert!(one(subject, 1).await);
        }
        let holds = !matches!(place, Place::New | Place::CountAlone);
        open.push(if holds { hold(&store, subject, &policy, 2).await } else { None });
    }
    begin_move(&cluster, &subjects, &policy);
    for ((subject, place), open) in subjects.iter().zip(&open) {
        let used = u64::from(*place != Place::New) + if open.is_some() { 2 } else { 0 };
        assert_eq!(available(&store, subject, &policy).await, 6 - used, "{place:?}");
        assert!(!one(subject, 6 - used + 1).await, "{place:?}: a cost that does not fit beside what is held");
        let second = hold(&store, subject, &policy, 6 - used - 1).await.unwrap();
        assert!(one(subject, 1).await, "{place:?}: the last unit");
        assert!(!one(subject, 1).await && hold(&store, subject, &policy, 1).await.is_none(), "{place:?}: full");
        assert_eq!(change(&store, &second, HoldChange::Renew).await, SettleAnswer::Settled, "{place:?}");
        if let Some(open) = open {
            assert_eq!(change(&store, open, HoldChange::Renew).await, SettleAnswer::Settled, "{place:?}");
            assert_eq!(change(&store, open, HoldChange::Settle(0)).await, SettleAnswer::Settled, "{place:?}");
            assert_eq!(change(&store, open, HoldChange::Settle(0)).await, SettleAnswer::Expired, "{place:?}");
            assert!(one(subject, 2).await, "{place:?}: what was released");
        }
        assert!(!one(subject, 1).await, "{place:?}: full again");
    }
    let (reset, _) = &subjects[3];
    assert!(answer(store.reset(&reset.into(), &policy)).await.unwrap());
    cluster.end_move(slot(&cluster), 2, 0);
    for (subject, place) in &subjects {
        let left = if subject == reset { 6 } else { 0 };
        assert_eq!(available(&store, subject, &policy).await, left, "{place:?}");
    }
}

/// A release and the next check are often in one call, and the key of holds goes with the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_behind_the_release_of_the_last_hold_gets_a_verdict_while_its_slot_moves() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let policy = Policy::concurrent("s", 1).unwrap();
    let mut subjects = subjects(&cluster, 61);
    let first = subjects.remove(0);
    assert!(hold(&store, &first, &policy, 1).await.is_some());
    let mut open = Vec::new();
    for subject in &subjects {
        // The count exists too, so the call is accepted.
        assert!(check(&store, &Check::new(subject.as_str(), &policy, 0)).await.allowed);
        open.push(hold(&store, subject, &policy, 1).await.unwrap());
    }
    cluster.begin_move(slot(&cluster), 2, 0);
    for (subject, open) in subjects.iter().zip(&open) {
        // The first call is under way while the other two wait, so they share the next one.
        let (_, released, next) = tokio::join!(
            peek(&store, &first, &policy),
            change(&store, open, HoldChange::Settle(0)),
            hold(&store, subject, &policy, 1),
        );
        assert_eq!(released, SettleAnswer::Settled);
        assert!(next.is_some() || hold(&store, subject, &policy, 1).await.is_some(), "the slot is free");
    }
    cluster.end_move(slot(&cluster), 2, 0);
}

/// A node that gives a slot away creates no key, and the key of holds goes with the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_follows_the_last_expired_one_is_made_while_its_slot_moves() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let subject = &subjects(&cluster, 1)[0];
    let policies = [false, true].map(|released| {
        let holds = HoldSettings::new().with_ttl(Duration::from_millis(300)).with_unsettled_released(released);
        Policy::per_hour(format!("{released:?}"), 6).unwrap().with_holds(holds)
    });
    for policy in &policies {
        assert!(check(&store, &Check::new(subject.as_str(), policy, 1)).await.allowed);
        for _ in 0..2 {
            assert!(hold(&store, subject, policy, 1).await.is_some());
        }
    }
    cluster.begin_move(slot(&cluster), 2, 0);
    tokio::time::sleep(Duration::from_millis(400)).await;
    for (policy, left) in policies.iter().zip([3, 5]) {
        let open = hold(&store, subject, policy, left).await.expect("what has expired leaves room");
        assert_eq!(available(&store, subject, policy).await, 0);
        assert_eq!(change(&store, &open, HoldChange::Settle(0)).await, SettleAnswer::Settled);
        assert_eq!(available(&store, subject, policy).await, left);
    }
    cluster.end_move(slot(&cluster), 2, 0);
    for (policy, left) in policies.iter().zip([3, 5]) {
        assert_eq!(available(&store, subject, policy).await, left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_check_of_several_policies_gets_a_verdict_wherever_its_keys_are_during_a_move() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let (policy, other) = (Policy::per_hour("a", 3).unwrap(), Policy::per_hour("z", 5).unwrap());
    let subjects = placed(&cluster);
    let both = |subject: &str, cost| Check::new(subject, &policy, cost).and(subject, &other, 1);
    for (subject, place) in &subjects {
        match place {
            Place::New => {}
            Place::CountAlone => assert!(check(&store, &Check::new(subject.as_str(), &policy, 1)).await.allowed),
            _ => assert!(check(&store, &both(subject, 1)).await.allowed),
        }
    }
    begin_move(&cluster, &subjects, &policy);
    for (subject, place) in &subjects {
        let left = 3 - u64::from(*place != Place::New);
        assert!(!check(&store, &both(subject, left + 1)).await.allowed, "{place:?}");
        for _ in 0..left {
            assert!(check(&store, &both(subject, 1)).await.allowed, "{place:?}");
        }
        assert!(!check(&store, &both(subject, 1)).await.allowed, "{place:?}");
        // A check that also charges another slot.
        let third = both(subject, 0).and("bar", &other, 0);
        assert!(check(&store, &third).await.allowed, "{place:?}");
    }
    cluster.end_move(slot(&cluster), 2, 0);
    for (subject, place) in &subjects {
        let spent = 4 - u64::from(matches!(place, Place::New | Place::CountAlone));
        let seen = (available(&store, subject, &policy).await, available(&store, subject, &other).await);
        // One check has charged only the second policy.
        let expected = (0, 5 - if *place == Place::CountAlone { 3 } else { spent.max(4) });
        assert_eq!(seen, expected, "{place:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_waits_until_the_keys_of_its_hold_are_together() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let policy = Policy::per_hour("h", 6).unwrap().with_holds(HoldSettings::new());
    let subjects: Vec<_> = subjects(&cluster, 2).into_iter().zip([Place::CountMoved, Place::OtherMoved]).collect();
    let mut holds = Vec::new();
    for (subject, _) in &subjects {
        assert!(check(&store, &Check::new(subject.as_str(), &policy, 1)).await.allowed);
        let two = hold(&store, subject, &policy, 2).await.unwrap();
        holds.push((two, hold(&store, subject, &policy, 1).await.unwrap()));
    }
    begin_move(&cluster, &subjects, &policy);
    for ((subject, place), (open, released)) in subjects.iter().zip(&holds) {
        assert!(answer(store.change_hold(open, HoldChange::Settle(1))).await.is_err(), "{place:?}");
        assert_eq!(available(&store, subject, &policy).await, 2, "{place:?}: the hold is open");
        assert_eq!(change(&store, released, HoldChange::Settle(0)).await, SettleAnswer::Settled, "{place:?}");
        assert_eq!(change(&store, released, HoldChange::Settle(1)).await, SettleAnswer::Expired, "{place:?}");
    }
    cluster.end_move(slot(&cluster), 2, 0);
    for ((subject, place), (open, _)) in subjects.iter().zip(&holds) {
        assert_eq!(change(&store, open, HoldChange::Settle(1)).await, SettleAnswer::Settled, "{place:?}");
        assert_eq!(available(&store, subject, &policy).await, 4, "{place:?}: two units are charged");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_a_denied_check_charges_no_policy_with_room_and_a_peek_counts_no_denial() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let policy = Policy::per_hour("b", 3).unwrap().ban_after(2, Duration::from_secs(600));
    let spent = Policy::per_hour("z", 1).unwrap();
    let subjects = [(subjects(&cluster, 1).remove(0), Place::CountMoved)];
    let one = |cost| Check::new(subjects[0].0.as_str(), &policy, cost);
    let both = one(1).and(subjects[0].0.as_str(), &spent, 1);
    assert!(check(&store, &both).await.allowed);
    begin_move(&cluster, &subjects, &policy);
    assert!(!check(&store, &both).await.allowed);
    assert_eq!(available(&store, &subjects[0].0, &policy).await, 2);
    assert!(check(&store, &one(2)).await.allowed);
    for _ in 0..3 {
        let peek = answer(store.peek(&one(1))).await.unwrap();
        assert!(!peek.allowed && peek.outcomes[0].ban_us == 0, "{peek:?}");
    }
    for is_banned in [false, true] {
        assert_eq!(check(&store, &one(1)).await.outcomes[0].ban_us > 0, is_banned);
    }
    cluster.end_move(slot(&cluster), 2, 0);
}

/// Takes a slot of `policy`, and keeps it for `time`, with a renewal each half second.
async fn upload(store: RedisStore, policy: Policy, time: Duration, running: Arc<AtomicU64>) -> Option<u64> {
    let open = hold(&store, "foo", &policy, 1).await?;
    let at_once = running.fetch_add(1, Ordering::Relaxed) + 1;
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // A renewal that fails is repeated with the next one.
        let _ = answer(store.change_hold(&open, HoldChange::Renew)).await;
    }
    running.fetch_sub(1, Ordering::Relaxed);
    while answer(store.change_hold(&open, HoldChange::Settle(0))).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Some(at_once)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_no_more_than_the_limit_run_at_once_while_a_slot_moves_for_five_seconds() {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let holds = HoldSettings::new().with_ttl(Duration::from_secs(3));
    let policy = Policy::concurrent("uploads", 2).unwrap().with_holds(holds);
    let (running, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut uploads = JoinSet::new();
    for number in 0..6 {
        let (store, policy, running, stop) = (store.clone(), policy.clone(), Arc::clone(&running), Arc::clone(&stop));
        uploads.spawn(async move {
            let (mut most, mut done) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let time = Duration::from_millis(1_200 + 300 * number);
                if let Some(at_once) = upload(store.clone(), policy.clone(), time, Arc::clone(&running)).await {
                    most = most.max(at_once);
                    done += 1;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (most, done)
        });
    }
    let cluster = tokio::task::spawn_blocking(move || {
        thread::sleep(Duration::from_millis(500));
        cluster.begin_move(slot(&cluster), 2, 0);
        thread::sleep(Duration::from_secs(5));
        cluster.end_move(slot(&cluster), 2, 0);
        cluster
    });
    let cluster = cluster.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let results = uploads.join_all().await;
    let (most, done) = results.iter().fold((0, 0), |(most, done), one| (most.max(one.0), done + one.1));
    assert_eq!(most, 2, "{results:?}");
    assert!(done >= 4, "{done} uploads in 5.5 s: slots were not given during the move");
    assert_eq!(available(&store, "foo", &policy).await, 2, "all slots are free");
    drop(cluster);
}
