//! Charges of as much as fits while a slot moves slowly between masters.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{CountChange, Store};
use tollgate::{Check, Key, Policy, policy::HoldSettings};

use super::holds::{answer, available, check, hold};
use super::slow_moves::{Place, begin_move, connected, placed, slot};
use crate::support::cluster::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_4_as_much_as_fits_is_charged_under_a_ban_wherever_its_keys_are_during_a_move() {
    let policy = Policy::per_hour("b", 9).unwrap().ban_after(2, Duration::from_secs(600));
    parts_during_a_move(policy, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_4_as_much_as_fits_is_charged_beside_holds_wherever_their_keys_are_during_a_move() {
    parts_during_a_move(Policy::per_hour("h", 9).unwrap().with_holds(HoldSettings::new()), false).await;
}

async fn parts_during_a_move(policy: Policy, bans: bool) {
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let subjects = placed(&cluster);
    let mut left = Vec::new();
    for (subject, place) in &subjects {
        if *place != Place::New {
            assert!(check(&store, &Check::new(subject.as_str(), &policy, 1)).await.allowed);
        }
        let mut used = u64::from(*place != Place::New);
        // The other key is that of a denial, or that of a hold.
        if has_both(*place) && bans {
            assert!(!check(&store, &Check::new(subject.as_str(), &policy, 9)).await.allowed);
        } else if has_both(*place) {
            assert!(hold(&store, subject, &policy, 2).await.is_some());
            used += 2;
        }
        left.push(9 - used);
    }
    begin_move(&cluster, &subjects, &policy);
    let up_to = async |subject: &str, cost| {
        let asked = Check::new(subject, &policy, cost);
        let (verdict, charged) = answer(store.charge_up_to(&asked.charges()[0])).await.unwrap();
        (charged, verdict.allowed, verdict.outcomes[0].ban_us > 0)
    };
    for ((subject, place), left) in subjects.iter().zip(left) {
        assert_eq!(up_to(subject, 3).await, (3, true, false), "{place:?}: all of it fits");
        assert_eq!(up_to(subject, 50).await, (left - 3, true, false), "{place:?}: a part fits");
        // A part is no denial, so the first one is that of before the move, or this one.
        let is_banned = bans && has_both(*place);
        assert_eq!(up_to(subject, 50).await, (0, false, is_banned), "{place:?}: nothing fits");
        assert_eq!(up_to(subject, 50).await, (0, false, bans), "{place:?}: nothing fits");
    }
    cluster.end_move(slot(&cluster), 2, 0);
    for (subject, place) in &subjects {
        assert_eq!(available(&store, subject, &policy).await, 0, "{place:?}");
    }
}

/// A subject whose count existed before the move, and whose denials did not.
fn count_alone(subjects: &[(String, Place)]) -> String {
    subjects.iter().find(|(_, place)| *place == Place::CountAlone).unwrap().0.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_2_callers_who_race_for_what_fits_during_a_move_count_one_denial_each_at_most() {
    let policy = Policy::per_hour("b", 9).unwrap().ban_after(9, Duration::from_secs(600));
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let subjects = placed(&cluster);
    let subject = count_alone(&subjects);
    assert!(check(&store, &Check::new(subject.as_str(), &policy, 1)).await.allowed);
    begin_move(&cluster, &subjects, &policy);
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (store, asked) = (store.clone(), Check::new(subject.as_str(), &policy, 50));
        callers.spawn(async move { answer(store.charge_up_to(&asked.charges()[0])).await.unwrap().1 });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<u64>(), 8);
    cluster.end_move(slot(&cluster), 2, 0);
    let after = check(&store, &Check::new(subject.as_str(), &policy, 0)).await;
    assert_eq!((after.outcomes[0].available, after.outcomes[0].ban_us), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_2_a_charge_of_what_fits_counts_no_denial_of_a_ban_by_hand_during_a_move() {
    let policy = Policy::per_hour("b", 9).unwrap().ban_after(2, Duration::from_secs(600));
    let cluster = Cluster::start();
    let store = connected(&cluster).await;
    let subjects = placed(&cluster);
    let subject = count_alone(&subjects);
    assert!(check(&store, &Check::new(subject.as_str(), &policy, 1)).await.allowed);
    let ban = CountChange::Ban(Duration::from_secs(60));
    answer(store.change_count(&Key::from(subject.as_str()), &policy, ban)).await.unwrap();
    begin_move(&cluster, &subjects, &policy);
    let asked = Check::new(subject.as_str(), &policy, 50);
    for _ in 0..3 {
        let (verdict, charged) = answer(store.charge_up_to(&asked.charges()[0])).await.unwrap();
        assert!(charged == 0 && !verdict.allowed);
        assert!((1..=60_000_000).contains(&verdict.outcomes[0].ban_us), "{verdict:?}");
    }
}

/// Whether both keys of a subject existed before the move.
fn has_both(place: Place) -> bool {
    !matches!(place, Place::New | Place::CountAlone)
}
