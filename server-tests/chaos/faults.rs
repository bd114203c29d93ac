//! The scenarios, each with the name that its line has.

use std::{thread, time::Duration};

use crate::{environment::Stage, scenario::Scenario, support::proxy::Fault};

const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

pub(crate) const REFUSED: Scenario = Scenario::network("refused", |stage| stage.network(Fault::Refuse));
pub(crate) const RESET: Scenario = Scenario::network("reset", |stage| stage.network(Fault::Reset));
pub(crate) const HALF_CLOSE: Scenario = Scenario::network("half_close", |stage| stage.network(Fault::HalfClose));
pub(crate) const BLACK_HOLE: Scenario = Scenario::network("black_hole", |stage| stage.network(Fault::BlackHole));
pub(crate) const THROTTLE: Scenario = Scenario::network("throttle", |stage| stage.network(Fault::Throttle(500)));
pub(crate) const LATENCY: Scenario =
    Scenario::network("latency_5s", |stage| stage.network(Fault::Latency(Duration::from_secs(5))));

pub(crate) const FROZEN: Scenario = Scenario::server("frozen", &[], |stage| {
    stage.server.signal("STOP");
    stage.hold();
    stage.server.signal("CONT");
});
pub(crate) const KILLED_WITH_DATA: Scenario = Scenario::server("killed_with_data", DURABLE, Stage::kill_and_restart);
pub(crate) const KILLED_WITHOUT_DATA: Scenario =
    Scenario::server("killed_without_data", &[], Stage::kill_and_restart).losing(1);

pub(crate) const LOADING: Scenario = Scenario::server("loading", DEBUG, |stage| {
    // Enough to load for a while, and a look at clients after every kilobyte of it.
    stage.command("DEBUG POPULATE 1200 chaos 1000");
    stage.command("CONFIG SET loading-process-events-interval-bytes 1024 key-load-delay 1000");
    stage.command("DEBUG RELOAD");
});
pub(crate) const READONLY: Scenario = Scenario::server("readonly", &[], |stage| {
    // A replica of nobody that answers keeps its data and serves reads.
    stage.tell(&["REPLICAOF 127.0.0.1 1"], &["REPLICAOF NO ONE"]);
});
pub(crate) const MASTERDOWN: Scenario =
    Scenario::server("masterdown", &["--replica-serve-stale-data", "no"], |stage| {
        stage.tell(&["REPLICAOF 127.0.0.1 1"], &["REPLICAOF NO ONE"]);
    });
pub(crate) const OOM: Scenario = Scenario::server("oom", &[], |stage| {
    stage.tell(&["CONFIG SET maxmemory 1"], &["CONFIG SET maxmemory 0"]);
});
pub(crate) const BUSY: Scenario = Scenario::server("busy", &["--busy-reply-threshold", "5"], |stage| {
    let mut other = stage.server.connection();
    let script = thread::spawn(move || {
        let looping = tollgate::redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut other);
        assert!(looping.unwrap_err().to_string().contains("killed"));
    });
    stage.tell(&[], &["SCRIPT KILL"]);
    script.join().unwrap();
});
pub(crate) const NOPERM: Scenario = Scenario::server("noperm", &[], |stage| {
    stage.tell(&["ACL SETUSER limiter -@scripting"], &["ACL SETUSER limiter +@all"]);
});
pub(crate) const PASSWORD: Scenario = Scenario::server("password_rotated", &[], |stage| {
    stage.tell(&["ACL SETUSER limiter resetpass >second", "CLIENT KILL USER limiter"], &["ACL SETUSER limiter >first"]);
});
pub(crate) const MAXCLIENTS: Scenario = Scenario::server("maxclients", &[], |stage| {
    // The administrator is the one.
    stage.tell(&["CONFIG SET maxclients 1", "CLIENT KILL USER limiter"], &["CONFIG SET maxclients 10000"]);
});
pub(crate) const CLOSED: Scenario = Scenario::server("connections_closed", &[], |stage| {
    for _ in 0..stage.hold.as_millis() / 100 {
        stage.command("CLIENT KILL USER limiter");
        // Each time the connections have been made again, and some have come to rest.
        thread::sleep(Duration::from_millis(100));
    }
});
pub(crate) const FLUSHES: Scenario = Scenario::server("script_flush_storm", &[], |stage| {
    for _ in 0..stage.hold.as_millis() / 4 {
        stage.command("SCRIPT FLUSH");
        // A storm, and not one single gust.
        thread::sleep(Duration::from_millis(4));
    }
});

/// Everything after which the counts are what they were.
pub(crate) const LOSSLESS: [Scenario; 18] = [
    REFUSED,
    FROZEN,
    RESET,
    BUSY,
    HALF_CLOSE,
    LOADING,
    BLACK_HOLE,
    READONLY,
    THROTTLE,
    MASTERDOWN,
    LATENCY,
    KILLED_WITH_DATA,
    OOM,
    NOPERM,
    PASSWORD,
    MAXCLIENTS,
    CLOSED,
    FLUSHES,
];

#[test]
fn connections_are_refused() {
    REFUSED.run();
}

#[test]
fn connections_are_reset() {
    RESET.run();
}

#[test]
fn connections_are_half_closed() {
    HALF_CLOSE.run();
}

#[test]
fn the_network_swallows_everything() {
    BLACK_HOLE.run();
}

#[test]
fn the_network_swallows_everything_for_a_moment() {
    for moment in [150, 450] {
        let fault = |stage: &mut Stage| stage.network(Fault::BlackHole);
        Scenario::network("black_hole_moment", fault).lasting(Duration::from_millis(moment)).run();
    }
}

#[test]
fn the_network_lets_five_hundred_bytes_a_second_through() {
    THROTTLE.run();
}

#[test]
fn every_packet_takes_five_seconds() {
    LATENCY.run();
}

#[test]
fn the_server_freezes_and_goes_on() {
    FROZEN.run();
}

#[test]
fn the_server_is_killed_and_comes_back_with_its_data() {
    KILLED_WITH_DATA.run();
}

#[test]
fn the_server_is_killed_and_comes_back_empty() {
    KILLED_WITHOUT_DATA.run();
}

#[test]
fn the_server_loads_its_data() {
    LOADING.run();
}

#[test]
fn the_server_becomes_a_replica_and_a_primary_again() {
    READONLY.run();
}

#[test]
fn the_server_has_lost_its_primary() {
    MASTERDOWN.run();
}

#[test]
fn the_server_is_out_of_memory() {
    OOM.run();
}

#[test]
fn the_server_is_busy_with_somebodys_script() {
    BUSY.run();
}

#[test]
fn the_user_may_not_run_scripts() {
    NOPERM.run();
}

#[test]
fn the_password_is_changed_and_changed_back() {
    PASSWORD.run();
}

#[test]
fn the_server_has_too_many_clients() {
    MAXCLIENTS.run();
}

#[test]
fn the_server_closes_its_connections_again_and_again() {
    CLOSED.run();
}

#[test]
fn scripts_are_flushed_all_the_time() {
    FLUSHES.run();
}
