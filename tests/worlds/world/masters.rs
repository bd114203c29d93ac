//! A master and its replica: how they change places, and how both are masters for a while.

use crate::network::Network;
use crate::server::{database::Database, sentinel::Role};

/// Whether the master has a replica that could take its place.
fn has_replica(network: &Network) -> bool {
    network.former.is_none() && !network.lives[0].is_down && !network.lives[1].is_down
}

/// Hands over to the replica, which has all data. The old master closes its connections. One sentinel knows at once.
pub(super) fn fail_over(network: &mut Network) -> bool {
    let from = network.master();
    let begins = has_replica(network);
    if begins {
        copy(network, from);
        network.set_master(1 - from, 1);
        network.close(from);
    }
    begins
}

/// Gives the other server all data of this one.
fn copy(network: &Network, from: usize) {
    let data = network.servers[from].with_data(|data| data.database.clone());
    network.servers[1 - from].with_data(|now| now.database = data);
}

/// The master is lost.
pub(super) fn lose(network: &mut Network) -> bool {
    let master = network.master();
    let begins = has_replica(network);
    if begins {
        network.lives[master].is_down = true;
    }
    begins
}

/// The replica of a master that was lost takes its place, with what it had some time before.
pub(super) fn replace(network: &mut Network, lost: usize, data: Option<&Database>) {
    let data = data.cloned().unwrap_or_default();
    network.servers[1 - lost].with_data(|now| now.database = data);
    network.set_master(1 - lost, usize::MAX);
}

/// The replica becomes a second master, with all data. All sentinels name it.
pub(super) fn leave_two(network: &mut Network) -> bool {
    let former = network.master();
    let begins = has_replica(network) && network.sentinels_agree();
    if begins {
        copy(network, former);
        network.former = Some(former);
        network.elect(1 - former, usize::MAX);
    }
    begins
}

/// Leaves the master alone with one process and the last sentinel.
pub(super) fn split(network: &mut Network, process: usize, until: u64) -> bool {
    let former = network.master();
    let begins = has_replica(network) && network.sentinels_agree();
    if begins {
        network.former = Some(former);
        network.split(process, former, until);
    }
    begins
}

/// All sentinels but the last elect the replica, which has what reached it before the split.
pub(super) fn elect_beside_former(network: &mut Network, data: Option<&Database>) {
    let Some(former) = network.former.filter(|former| !network.lives[1 - former].is_down) else { return };
    let data = data.cloned().unwrap_or_default();
    network.servers[1 - former].with_data(|now| now.database = data);
    let all_but_one = network.sentinels() - 1;
    network.elect(1 - former, all_but_one);
}

/// The former master becomes a replica of the one that was elected, and loses what it alone has counted. It closes its
/// connections. If none was elected, it stays the master.
pub(super) fn end_two(network: &mut Network) {
    let Some(former) = network.former.take() else { return };
    if network.servers[1 - former].role == Role::Master {
        copy(network, 1 - former);
        network.set_master(1 - former, usize::MAX);
        network.close(former);
    }
}
