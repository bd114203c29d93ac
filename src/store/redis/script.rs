//! The one script and how it is called: EVALSHA, and EVAL where the server does not have it.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};

use super::connection::Connection;

/// Assembled when the crate is compiled: one text, one SHA-1.
const CODE: &str = concat!(
    include_str!("../../../lua/prelude.lua"),
    include_str!("../../../lua/sliding_window_log.lua"),
    include_str!("../../../lua/sliding_window_counter.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/give_back.lua"),
    include_str!("../../../lua/check.lua"),
);

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(CODE));

/// The start of a call; keys and arguments follow.
pub(super) fn evalsha() -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SCRIPT.get_hash());
    command
}

/// Makes sure that a process loads the script once, however many checks find it missing at the same time.
///
/// The number is odd while somebody loads and grows with every load, so a check can tell whether the script may have
/// come since it was sent.
#[derive(Debug, Default)]
pub(super) struct Loader {
    loads: AtomicU64,
}

impl Loader {
    /// Runs a call that [`evalsha`] started. A script that is missing has not run, so EVAL may follow in the same
    /// check: two round trips, and no race with the next SCRIPT FLUSH.
    pub(super) async fn run(&self, connection: &mut Connection, call: &Cmd) -> RedisResult<Value> {
        let seen = self.loads.load(Ordering::Acquire);
        match connection.query(call).await {
            // In a box, because it is rare.
            Err(error) if is_missing(&error) => Box::pin(self.run_with_body(connection, call, seen)).await,
            result => result,
        }
    }

    async fn run_with_body(&self, connection: &mut Connection, call: &Cmd, seen: u64) -> RedisResult<Value> {
        // EVAL alone would do on most servers, but Redis 7.4 evicts scripts that were never loaded.
        let loading = self.begin(seen);
        if loading.is_some() {
            send_ahead(connection).await;
        }
        connection.query(&with_body(call)).await
    }

    /// Becomes the one that loads, unless another does or has done since `seen`.
    fn begin(&self, seen: u64) -> Option<Loading<'_>> {
        let idle = seen.is_multiple_of(2);
        let exchange = || self.loads.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire);
        (idle && exchange().is_ok()).then_some(Loading(self))
    }
}

/// Lets go also when the check is cancelled, so that the next one can load.
struct Loading<'a>(&'a Loader);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loads.fetch_add(1, Ordering::AcqRel);
    }
}

/// Sends the script ahead of a call, which then finds it there. Its error (no permission for SCRIPT, say) does not
/// matter: a call that finds no script sends it itself.
pub(super) async fn send_ahead(connection: &Connection) {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(CODE);
    connection.send_ahead(load).await;
}

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

/// Whether the server does not let scripts ask for the time: forbidden to all, renamed, or not allowed to this user.
///
/// Of the commands of the script only that one is called outside of a check, so an error of the call is about it.
pub(super) fn is_time_forbidden(error: &RedisError) -> bool {
    let text = error.to_string();
    TIME_FORBIDDEN.iter().any(|forbidden| text.contains(forbidden))
}

/// What servers say of it. These have no code of their own, so there is only the text.
const TIME_FORBIDDEN: [&str; 5] = [
    "not allowed from script",
    "Unknown Redis command called from", // Redis
    "Unknown command called from",       // Valkey
    "can't run this command",            // Redis 6.2, by its ACL
    "'time'",                            // the others, by theirs
];

fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_forbid_the_time_are_understood_whichever_they_are() {
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
}
