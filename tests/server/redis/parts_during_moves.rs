//! Charges of as much as fits while a slot moves slowly between masters.

use std::time::Duration;

use tollgate::{Check, Policy, policy::HoldSettings, store::Store};

use super::{
    holds::{answer, available, check, hold},
    slow_moves::{Place, begin_move, connected, placed, slot},
};
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

/// Whether both keys of a subject existed before the move.
fn has_both(place: Place) -> bool {
    !matches!(place, Place::New | Place::CountAlone)
}
