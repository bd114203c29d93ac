//! Scenarios whose servers cannot be followed yet. They have their names and places already.

use crate::scenario::Scenario;

const CLUSTER: Scenario = Scenario::server("cluster_failover", &[], |_| {
    unimplemented!("start 3 primaries and 3 replicas, kill a primary, move slots, all under load; 1.5 s to recover")
});
const SENTINEL: Scenario = Scenario::server("sentinel_failover", &[], |_| {
    unimplemented!("start a primary, a replica and 3 sentinels; kill the primary under load; 1 s to recover")
});

#[test]
#[ignore = "not written yet: tests/redis/cluster.rs has moved slots and a lost master"]
fn a_cluster_loses_a_primary_and_moves_slots() {
    CLUSTER.run();
}

#[test]
#[ignore = "not written yet: tests/redis/sentinel.rs follows a switch"]
fn a_sentinel_elects_another_primary() {
    SENTINEL.run();
}
