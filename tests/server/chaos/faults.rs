//! The faults of the network and of the server, one scenario each. The name of a scenario starts its report line.

use std::{thread, time::Duration};

use crate::{environment::Environment, scenario::Scenario, support::proxy::Fault};

const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

pub(crate) const REFUSED: Scenario = Scenario::network("refused", |environment| environment.inject(Fault::Refuse));
pub(crate) const RESET: Scenario = Scenario::network("reset", |environment| environment.inject(Fault::Reset));
pub(crate) const HALF_CLOSE: Scenario =
    Scenario::network("half_close", |environment| environment.inject(Fault::HalfClose));
pub(crate) const BLACK_HOLE: Scenario =
    Scenario::network("black_hole", |environment| environment.inject(Fault::BlackHole));
pub(crate) const THROTTLE: Scenario =
    Scenario::network("throttle", |environment| environment.inject(Fault::Throttle(500)));
pub(crate) const LATENCY: Scenario =
    Scenario::network("latency_5s", |environment| environment.inject(Fault::Latency(Duration::from_secs(5))));

pub(crate) const FROZEN: Scenario = Scenario::server("frozen", &[], |environment| {
    environment.server.signal("STOP");
    environment.hold();
    environment.server.signal("CONT");
});
pub(crate) const KILLED_WITH_DATA: Scenario =
    Scenario::server("killed_with_data", DURABLE, Environment::kill_and_restart);
pub(crate) const KILLED_WITHOUT_DATA: Scenario =
    Scenario::server("killed_without_data", &[], Environment::kill_and_restart).with_data_losses(1);

pub(crate) const LOADING: Scenario = Scenario::server("loading", DEBUG, |environment| {
    // Enough data to load for a while; the server serves clients (-LOADING) after every kilobyte.
    environment.command("DEBUG POPULATE 1200 chaos 1000");
    environment.command("CONFIG SET loading-process-events-interval-bytes 1024 key-load-delay 1000");
    environment.command("DEBUG RELOAD");
});
pub(crate) const READONLY: Scenario = Scenario::server("readonly", &[], |environment| {
    // A replica whose master does not exist keeps its data and serves reads.
    environment.hold_between(&["REPLICAOF 127.0.0.1 1"], &["REPLICAOF NO ONE"]);
});
pub(crate) const MASTERDOWN: Scenario =
    Scenario::server("masterdown", &["--replica-serve-stale-data", "no"], |environment| {
        environment.hold_between(&["REPLICAOF 127.0.0.1 1"], &["REPLICAOF NO ONE"]);
    });
pub(crate) const OOM: Scenario = Scenario::server("oom", &[], |environment| {
    environment.hold_between(&["CONFIG SET maxmemory 1"], &["CONFIG SET maxmemory 0"]);
});
pub(crate) const BUSY: Scenario = Scenario::server("busy", &["--busy-reply-threshold", "5"], |environment| {
    let mut other = environment.server.connection();
    let script = thread::spawn(move || {
        let looping = tollgate::redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut other);
        assert!(looping.unwrap_err().to_string().contains("killed"));
    });
    environment.hold_between(&[], &["SCRIPT KILL"]);
    script.join().unwrap();
});
pub(crate) const NOPERM: Scenario = Scenario::server("noperm", &[], |environment| {
    environment.hold_between(&["ACL SETUSER limiter -@scripting"], &["ACL SETUSER limiter +@all"]);
});
pub(crate) const PASSWORD: Scenario = Scenario::server("password_rotated", &[], |environment| {
    environment.hold_between(
        &["ACL SETUSER limiter resetpass >second", "CLIENT KILL USER limiter"],
        &["ACL SETUSER limiter >first"],
    );
});
pub(crate) const MAXCLIENTS: Scenario = Scenario::server("maxclients", &[], |environment| {
    // The administrator's connection uses the only slot.
    environment
        .hold_between(&["CONFIG SET maxclients 1", "CLIENT KILL USER limiter"], &["CONFIG SET maxclients 10000"]);
});
pub(crate) const CLOSED: Scenario = Scenario::server("connections_closed", &[], |environment| {
    for _ in 0..environment.hold.as_millis() / 100 {
        environment.command("CLIENT KILL USER limiter");
        // By the next kill, the workers have reconnected, and some connections are idle.
        thread::sleep(Duration::from_millis(100));
    }
});
pub(crate) const FLUSHES: Scenario = Scenario::server("script_flush_storm", &[], |environment| {
    for _ in 0..environment.hold.as_millis() / 4 {
        environment.command("SCRIPT FLUSH");
        thread::sleep(Duration::from_millis(4));
    }
});

/// Faults that lose no counts.
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
fn the_network_drops_everything() {
    BLACK_HOLE.run();
}

#[test]
fn the_network_drops_everything_for_a_moment() {
    for moment in [150, 450] {
        let fault = |environment: &mut Environment| environment.inject(Fault::BlackHole);
        Scenario::network("black_hole_moment", fault).with_hold(Duration::from_millis(moment)).run();
    }
}

#[test]
fn the_network_forwards_five_hundred_bytes_per_second() {
    THROTTLE.run();
}

#[test]
fn every_packet_takes_five_seconds() {
    LATENCY.run();
}

#[test]
fn the_server_freezes_and_resumes() {
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
fn the_server_is_busy_with_another_clients_script() {
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
fn the_server_closes_its_connections_repeatedly() {
    CLOSED.run();
}

#[test]
fn scripts_are_flushed_continuously() {
    FLUSHES.run();
}
