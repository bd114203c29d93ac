//! Looks at the counts and the open holds of one client in Redis, resets them, and changes them by hand.
//!
//! ```text
//! $ cargo run --release -p tollgate-inspect -- peek --redis redis://127.0.0.1:6379 \
//!       --secret-file key-secret --policy api=60/min ip:203.0.113.7
//! policy  limit (as given)  spent  available  next unit  reset  ban  redis key
//! api     60/1m                60          0      12.3s  59.1s    -  tollgate:{$jNgwNedyTCtiXQpgeJGxhg}:api:l5:1m
//! ```

mod arguments;
mod bans;
mod beside;
mod commands;
mod files;
mod key;
mod number;
mod policies;
mod policy_text;
mod same_count;
mod server;
mod standing;
mod table;
mod time;
mod usage;

use std::{fmt, io, process::ExitCode};

use crate::arguments::Request;

/// Why the program ends without a result.
pub(crate) enum Failure {
    /// The arguments, or a file that they name, are wrong. Redis was not asked.
    Arguments(String),
    /// Redis gave no answer, or the answer was an error.
    Redis(tollgate::Error),
    Output(io::Error),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Arguments(message)
    }
}

impl From<tollgate::Error> for Failure {
    fn from(error: tollgate::Error) -> Self {
        Self::Redis(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arguments(message) => write!(f, "{message}"),
            Self::Redis(error) => write!(f, "{error}"),
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

/// Everything runs on one thread: the program sends a few commands, one after another.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tollgate-inspect: {failure}");
            ExitCode::from(if matches!(failure, Failure::Arguments(_)) { 2 } else { 1 })
        }
    }
}

async fn run() -> Result<(), Failure> {
    match Request::parse(std::env::args_os().skip(1))? {
        Some(request) => commands::run(request, &mut io::stdout().lock()).await,
        None => {
            print!("{}", usage::USAGE);
            Ok(())
        }
    }
}
