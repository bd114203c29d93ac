//! The commands. Each looks at the client under one policy after the other, and prints a table on standard output and
//! advice on standard error.

mod by_hand;
mod client;
mod form;
mod peek;
mod reset;

use std::io::Write;

use tollgate::{Error, ErrorKind, Limiter, observe::Fingerprint};

use self::client::Report;
pub(crate) use self::{
    client::Client,
    form::{Command, Form},
};
use crate::{Failure, arguments::Arguments, time::exact};

const NOTHING_COUNTED: &str = "nothing is counted for this key; compare the kind of the key, the prefix, the secret, \
                               and the name, algorithm, window and resolution of the policy with the service's";

/// The same after a change, which is counted itself.
const NOTHING_BEFORE: &str = "nothing was counted for this key before; if the service has seen this client lately, \
                              compare the kind of the key, the prefix, the secret, and the name, algorithm, window and \
                              resolution of the policy with the service's";

const MEMORY_FULL: &str = "the server's memory is full, so checks that would be charged get no verdict; raise its \
                           maxmemory, or give the limiter a separate server";

pub(crate) async fn run(arguments: Arguments, output: &mut impl Write) -> Result<(), Failure> {
    let Arguments { command, key, key_hints, policies, settings } = arguments;
    let timeout = settings.timeout;
    if let Some(secret) = &settings.secret {
        // Errors then name the client as the logs of the service do.
        Fingerprint::set_secret(secret).map_err(|error| error.to_string())?;
    }
    let store = settings.store().map_err(|error| error.to_string())?;
    // Failures are printed as errors of the commands, so the limiter need not report them as well.
    let limiter = Limiter::new(store.clone()).without_notices();
    let mut report = Report::default();
    // A wrong password or an unreachable server fails here, with the server's own message.
    let ready = tokio::time::timeout(timeout, limiter.ready()).await;
    let no_answer = || Error::new(ErrorKind::Deadline, format!("no answer within {}", exact(timeout)));
    match ready.unwrap_or_else(|_| Err(no_answer())) {
        // A server whose memory is full refuses to charge, and still answers `peek` and `reset`.
        Err(error) if error.to_string().contains(" OOM ") => report.advice.push(MEMORY_FULL.to_owned()),
        answer => answer?,
    }
    let client = Client { limiter, store, key };
    let result = match command {
        Command::Peek => peek::run(&client, &policies, &mut report, output).await,
        Command::Reset => reset::run(&client, &policies, &mut report, output).await,
        Command::Change(change) => by_hand::run(&client, &policies, change, &mut report, output).await,
    };
    if result.is_ok() && !report.has_found {
        let nothing = if matches!(command, Command::Change(_)) { NOTHING_BEFORE } else { NOTHING_COUNTED };
        report.advice.push(nothing.to_owned());
        report.advice.extend(key_hints);
    }
    for line in report.advice {
        eprintln!("tollgate-inspect: {line}");
    }
    result
}
