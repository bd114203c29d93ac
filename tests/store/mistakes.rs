//! Mistakes of a check that a store is asked directly, and of the settings of a store.

use std::time::Duration;

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, ErrorKind, MemoryStore, Policy, RedisStore};

use crate::support::says;

async fn answer(answer: Answer<Verdict>) -> Result<Verdict, tollgate::Error> {
    match answer {
        Answer::Ready(result) => result,
        Answer::Pending(result) => result.await,
    }
}

/// A part of the limits of such a check is missing.
#[tokio::test]
async fn a_store_refuses_a_check_with_a_mistake() {
    let policy = |limit| Policy::per_minute("p", limit).unwrap();
    let check = Check::new("k", &policy(10), 1).and("k", &policy(20), 1);
    let redis = RedisStore::open("redis://127.0.0.1:1").unwrap();
    for store in [Box::new(MemoryStore::new()) as Box<dyn Store>, Box::new(redis)] {
        let error = answer(store.check(&check)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        says(error, r#"two policies of one check are called "p" "#);
    }
}

#[test]
fn a_builder_reports_its_first_mistake_when_it_opens_the_store() {
    let short = || RedisStore::builder().key_secret("short");
    for builder in [
        short(),
        short().deadline(Duration::ZERO),
        RedisStore::builder().deadline(Duration::ZERO).key_secret("short"),
        short().pool_size(0),
        short().key_secret("a secret of 32 bytes, long enough"),
    ] {
        says(builder.clone().open("http://host").unwrap_err(), "a secret of 5 bytes could be guessed; ");
        says(builder.open_cluster(["redis://127.0.0.1:1"]).unwrap_err(), "a secret of 5 bytes could be guessed; ");
    }
}
