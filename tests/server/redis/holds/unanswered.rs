//! Changes whose answer is lost are sent again and change nothing twice.

use std::time::Duration;

use tollgate::store::{HoldChange, SettleAnswer, Store};
use tollgate::{Policy, policy::HoldSettings};

use super::{answer, available, builder, change, hold};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_whose_answer_is_lost_is_made_once_however_often_it_is_sent() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = builder().deadline(Duration::from_millis(300)).open(&proxy.url()).unwrap();
    let direct = builder().open(&server.url()).unwrap();
    let policy = Policy::per_hour("p", 100).unwrap().with_holds(HoldSettings::new());
    for (round, fault) in [(0, Fault::Mute), (1, Fault::HalfClose), (2, Fault::Reset)] {
        let key = format!("k{round}");
        let open = hold(&store, &key, &policy, 50).await.unwrap();
        proxy.set(fault);
        let pending = match store.change_hold(&open, HoldChange::Settle(30)) {
            tollgate::store::Answer::Pending(pending) => pending,
            tollgate::store::Answer::Ready(result) => panic!("{result:?}"),
        };
        let lost = tokio::time::timeout(Duration::from_millis(300), pending).await;
        assert!(!matches!(lost, Ok(Ok(_))), "{fault:?}: {lost:?}");
        proxy.set(Fault::Pass);
        let mut answered = 0;
        for _ in 0..200 {
            // Sent again until it is answered, and once more.
            if let Ok(settlement) = answer(store.change_hold(&open, HoldChange::Settle(30))).await {
                answered += 1;
                assert!(answered == 1 || settlement == SettleAnswer::Expired, "{fault:?}");
                if answered == 2 {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(answered, 2, "{fault:?}");
        assert_eq!(available(&direct, &key, &policy).await, 70, "{fault:?}");
        assert_eq!(change(&direct, &open, HoldChange::Renew).await, SettleAnswer::Expired);
    }
}
