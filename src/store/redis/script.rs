//! The one script and how it is called: EVALSHA, and EVAL where the server does not have it.

use std::sync::{
    LazyLock,
    atomic::{AtomicU64, Ordering},
};

use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value, aio::MultiplexedConnection};

use super::connection::{Connection, Wire};

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
            Err(error) if is_missing(&error) => {
                let eval = with_body(call);
                match (&mut connection.wire, self.begin(seen)) {
                    (Wire::Single(connection), Some(_loading)) => eval_and_load(connection, eval).await,
                    // On a cluster EVAL brings it to the node that it is sent to; LOAD would go to all of them.
                    _ => connection.query(&eval).await,
                }
            }
            result => result,
        }
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

/// EVAL alone would do on most servers, but Redis 7.4 evicts scripts that were never loaded. Loading is not needed
/// for the verdict, so its error (no permission for SCRIPT, say) is none of ours.
async fn eval_and_load(connection: &mut MultiplexedConnection, eval: Cmd) -> RedisResult<Value> {
    let mut pipeline = redis::pipe();
    pipeline.add_command(eval).cmd("SCRIPT").arg("LOAD").arg(CODE).ignore_errors();
    let results: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
    results.into_iter().next().unwrap_or(Ok(Value::Nil))
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
    ["not allowed from script", "Unknown Redis command called from script", "can't run this command", "'time'"]
        .iter()
        .any(|forbidden| text.contains(forbidden))
}

fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
