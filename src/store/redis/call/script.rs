//! The script and its calls: EVALSHA, and EVAL where the server does not have the script. The script uses the server's
//! time, or this process's time if the server forbids `TIME` in scripts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use crate::clock::{Clock, SystemClock, wall_time_us};
use crate::store::redis::net::routed::RoutedConnection;

/// The script, assembled when the crate is compiled: one text, one SHA-1.
const CODE: &str = include!("../../../../lua/script.rs");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CODE));

/// The start of a call. Keys and arguments follow.
pub(crate) fn evalsha() -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SCRIPT.get_hash());
    command
}

/// Ensures that a process loads the script once, however many checks find it missing at the same time.
#[derive(Debug, Default)]
pub(crate) struct Loader {
    /// Odd while a load is in flight; incremented at its start and end. So a check can detect whether the script may
    /// have been loaded since the check was sent.
    loads: AtomicU64,
}

impl Loader {
    /// Runs a call that [`evalsha`] started. If the server does not have the script, nothing has run, so EVAL may
    /// follow in the same check: two round trips, and no race with the next SCRIPT FLUSH.
    pub(crate) async fn run(&self, connection: &mut RoutedConnection, call: &Cmd) -> RedisResult<Value> {
        let seen = self.loads.load(Ordering::Acquire);
        match connection.query(call).await {
            // Boxed, because EVAL is rare and its future is large.
            Err(error) if is_missing(&error) => Box::pin(self.run_with_body(connection, call, seen)).await,
            result => result,
        }
    }

    /// Runs a call as EVAL, and loads the script for later calls.
    async fn run_with_body(&self, connection: &mut RoutedConnection, call: &Cmd, seen: u64) -> RedisResult<Value> {
        // EVAL alone suffices on most servers, but Redis 7.4 evicts scripts that were never loaded.
        let loading = self.begin(seen);
        if loading.is_some() {
            // An error, such as a missing permission, does not matter, because EVAL sends the script as well.
            connection.send_ahead(load()).await;
        }
        connection.query(&with_body(call)).await
    }

    /// Starts a load, unless a load has started since `seen`.
    fn begin(&self, seen: u64) -> Option<Loading<'_>> {
        let exchange = || self.loads.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
        // Made only if the load starts, because its drop is the end of a load.
        (seen.is_multiple_of(2) && exchange().is_ok()).then(|| Loading(self))
    }
}

/// The turn to load the script, which one check has at a time. Ends when it is dropped, also when the check is
/// cancelled, so that the next check can load.
struct Loading<'a>(&'a Loader);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loads.fetch_add(1, Ordering::AcqRel);
    }
}

/// The command that loads the script.
pub(crate) fn load() -> Cmd {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(CODE);
    load
}

/// The EVAL with the keys and arguments of an EVALSHA.
fn with_body(call: &Cmd) -> Cmd {
    let mut eval = redis::cmd("EVAL");
    eval.arg(CODE);
    for argument in call.args_iter().skip(2) {
        if let Arg::Simple(argument) = argument {
            eval.arg(argument);
        }
    }
    eval
}

/// Whether the error means that the server forbids `TIME` in scripts: for all users, by renaming the command, or for
/// this user.
///
/// The script reports errors of all other commands for a single check, so an error of the whole call is about `TIME`.
pub(crate) fn is_time_forbidden(error: &RedisError) -> bool {
    let text = error.to_string();
    TIME_FORBIDDEN.iter().any(|forbidden| text.contains(forbidden))
}

/// Parts of the errors of servers that forbid `TIME`. These errors have no code of their own.
const TIME_FORBIDDEN: [&str; 5] = [
    "not allowed from script",
    "Unknown Redis command called from", // Redis
    "Unknown command called from",       // Valkey
    "can't run this command",            // the ACL of Redis 6.2
    "'time'",                            // the ACL of other servers
];

fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The source of the script's time.
#[derive(Debug)]
pub(crate) struct ScriptClock {
    /// The user's clock, which replaces the server's.
    clock: Option<Arc<dyn Clock>>,
    /// Until when calls carry the process's time, because the server has forbidden `TIME`.
    time_forbidden_until_us: AtomicU64,
    /// By how much the server's clock was ahead of the process's in the last reply with a calendar window.
    server_ahead_us: AtomicI64,
}

/// Period after which `TIME` is tried again: the server's time is better, because all instances share it.
const RETRY_TIME_US: u64 = 60_000_000;

impl ScriptClock {
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, time_forbidden_until_us: AtomicU64::new(0), server_ahead_us: AtomicI64::new(0) }
    }

    /// The time to send with a call. With `None` the script uses the server's time.
    ///
    /// The wall clock may step, but all machines have to agree on the time, and the time of a key in Redis never runs
    /// backwards.
    pub(crate) fn now_us(&self) -> Option<u64> {
        if let Some(clock) = &self.clock {
            return Some(clock.now_us());
        }
        let until_us = self.time_forbidden_until_us.load(Ordering::Relaxed);
        (until_us > 0 && SystemClock.now_us() < until_us).then(wall_time_us)
    }

    /// Records the time of a reply.
    pub(crate) fn replied(&self, time_us: u64) {
        self.server_ahead_us.store(time_us.wrapping_sub(SystemClock.now_us()).cast_signed(), Ordering::Relaxed);
    }

    /// The server's time, as far as the last reply says; before the first one, the process's time.
    pub(crate) fn expected_us(&self) -> u64 {
        SystemClock.now_us().saturating_add_signed(self.server_ahead_us.load(Ordering::Relaxed))
    }

    /// Records that the server forbids `TIME` in scripts.
    pub(crate) fn time_is_forbidden(&self) {
        self.time_forbidden_until_us.store(SystemClock.now_us() + RETRY_TIME_US, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::world::World;

    #[test]
    fn the_script_has_every_file_of_its_folder() {
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "lua") {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(CODE.contains(&text), "lua/script.rs lacks {}", path.display());
            }
        }
    }

    #[test]
    fn of_the_checks_that_miss_the_script_one_loads_it() {
        let loader = Loader::default();
        for loads in [0, 2] {
            let first = loader.begin(loads);
            assert!(first.is_some());
            assert!(loader.begin(loads).is_none() && loader.begin(loads + 1).is_none(), "a load is in flight");
            drop(first);
            assert!(loader.begin(loads).is_none() && loader.begin(loads + 1).is_none(), "it may have met that load");
        }
    }

    #[test]
    fn the_errors_of_all_servers_that_forbid_time_are_recognised() {
        for (server, text, forbidden) in [
            ("Redis 6.2", "@user_script: 10: Unknown Redis command called from Lua script", true),
            ("its ACL", "@user_script: 10: The user executing the script can't run this command or subcommand", true),
            ("Redis 7 and 8", "Unknown Redis command called from script script: 12, on @user_script:10.", true),
            ("their ACL", "ACL failure in script: User app has no permissions to run the 'time' command", true),
            ("Valkey 8 and 9", "Unknown command called from script script: on @user_script:10.", true),
            ("ElastiCache Serverless", "This Redis command is not allowed from script script: 12", true),
            ("any", "wrong number of arguments for 'evalsha' command", false),
            ("any", "@user_script:9: user_script:9: attempt to index a nil value", false),
        ] {
            let error = redis::parse_redis_value(format!("-ERR {text}\r\n").as_bytes()).unwrap().extract_error();
            assert_eq!(is_time_forbidden(&error.unwrap_err()), forbidden, "{server}: {text}");
        }
    }

    #[test]
    fn a_server_that_forbids_time_gets_that_of_the_process_for_a_minute() {
        let (world, clock) = (World::enter(100_000_000, 1), ScriptClock::new(None));
        assert_eq!(clock.now_us(), None);
        clock.time_is_forbidden();
        for (now_us, is_sent) in [(100_000_000, true), (159_999_999, true), (160_000_000, false)] {
            world.set_time_us(now_us);
            assert_eq!(clock.now_us(), is_sent.then_some(now_us), "{now_us}");
        }
    }
}
