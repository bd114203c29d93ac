//! Keys that other stores have confused, and large checks.

use tollgate::Check;

use crate::failure::{Tested, ensure, ensure_eq};
use crate::tested_store::TestedStore;

pub(super) async fn hostile_keys_are_keys_like_any_other(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 2)?;
    let megabyte = "x".repeat(1 << 20);
    let keys = ["", "{", "}", "{}", "{a}", "a}{b", "a:b", "\r\nFLUSHALL\r\n", "\0", "é", "%", "#", "*", &megabyte];
    for key in keys {
        ensure_eq!(store.check(key, &policy, 1).await?.available(), Some(1), "available to the fresh key {key:.20?}");
    }
    for key in keys {
        ensure_eq!(store.check(key, &policy, 1).await?.available(), Some(0), "available to the key {key:.20?}");
        ensure!(!store.check(key, &policy, 1).await?.is_allowed(), "three of two were admitted to the key {key:.20?}");
    }
    Ok(())
}

pub(super) async fn several_charges_for_one_key_and_policy_add_up(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 10)?;
    let check = Check::new("k", &policy, 4).and("k", &policy, 4);
    ensure_eq!(store.check_all(check.clone()).await?.available(), Some(2), "available after twice 4 of 10");
    ensure!(!store.check_all(check).await?.is_allowed(), "16 of 10 were admitted");
    let mut largest = Check::new("k", &store.per_minute("p0", 10)?, 1);
    for number in 1..Check::MAX_CHARGES {
        largest = largest.and("k", &store.per_minute(&format!("p{number}"), 10)?, 1);
    }
    ensure!(store.check_all(largest).await?.is_allowed(), "a check of {} charges was denied", Check::MAX_CHARGES);
    Ok(())
}
