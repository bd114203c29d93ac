//! The commands. Each looks at the client under one policy after the other, and prints a table on standard output and
//! advice on standard error.

mod by_hand;
mod client;
mod form;
mod peek;
mod reset;
mod reset_all;

use std::{io::Write, time::Duration};

use tollgate::{Error, ErrorKind, Limiter, observe::Fingerprint};

use self::client::Report;
pub(crate) use self::{
    client::Client,
    form::{Command, Form},
};
use crate::arguments::{Arguments, Request};
use crate::{Failure, time::exact};

/// What to compare with the service if its counts are not found.
const COMPARE: &str = "compare the kind of the key, the prefix, the secret, --cluster instead of --redis, and the name, \
                       algorithm, window, resolution and shards of the policy with the service's";

const MEMORY_FULL: &str = "the server's memory is full, so checks that would be charged get no verdict; raise its \
                           maxmemory, or give the limiter a separate server";

const NODE_OF_A_CLUSTER: &str = "this server is a node of a cluster: write --cluster URL instead of --redis URL";

pub(crate) async fn run(request: Request, output: &mut impl Write) -> Result<(), Failure> {
    match request {
        Request::Client(arguments) => run_for_client(*arguments, output).await,
        Request::ResetAll(settings) => reset_all::run(settings, output).await,
    }
}

async fn run_for_client(arguments: Arguments, output: &mut impl Write) -> Result<(), Failure> {
    let Arguments { command, key, key_hints, policies, left_out, settings } = arguments;
    let timeout = settings.timeout;
    if let Some(secret) = &settings.secret {
        // Errors then name the client as the logs of the service do.
        Fingerprint::set_secret(secret).map_err(|error| error.to_string())?;
    }
    let store = settings.store().map_err(|error| error.to_string())?;
    // Failures are printed as errors of the commands, so the limiter need not report them as well.
    let limiter = Limiter::new(store.clone()).without_notices();
    let mut report = Report::default();
    report.advise(left_out);
    let client = Client { limiter, store, key };
    let result = match ready(&client.limiter, timeout, &mut report).await {
        Err(error) => Err(error.into()),
        Ok(()) => match command {
            Command::Peek => peek::run(&client, &policies, &mut report, output).await,
            Command::Reset => reset::run(&client, &policies, &mut report, output).await,
            Command::Change(change) => by_hand::run(&client, &policies, change, &mut report, output).await,
        },
    };
    match &result {
        Err(Failure::Redis(error)) if error.to_string().contains(" MOVED ") => {
            report.advise([NODE_OF_A_CLUSTER.to_owned()]);
        }
        Ok(()) if !report.has_found => {
            report.advise([nothing(command)]);
            report.advise(key_hints);
        }
        _ => {}
    }
    for line in report.into_advice() {
        eprintln!("tollgate-inspect: {line}");
    }
    result
}

/// Whether the server answers. A wrong password or an unreachable server fails here, with the server's own message.
async fn ready(limiter: &Limiter, timeout: Duration, report: &mut Report) -> Result<(), Error> {
    let no_answer = || Error::new(ErrorKind::Deadline, format!("no answer within {}", exact(timeout)));
    match tokio::time::timeout(timeout, limiter.ready()).await.unwrap_or_else(|_| Err(no_answer())) {
        // A server whose memory is full refuses to charge, and still answers `peek` and `reset`.
        Err(error) if error.to_string().contains(" OOM ") => {
            report.advise([MEMORY_FULL.to_owned()]);
            Ok(())
        }
        answer => answer,
    }
}

/// What a client without a count may mean. A change is counted itself.
fn nothing(command: Command) -> String {
    match command {
        Command::Change(_) => {
            format!("nothing was counted for this key before; if the service has seen this client lately, {COMPARE}")
        }
        Command::Peek | Command::Reset => format!(
            "nothing is counted for this key: the client is idle, or the service counts elsewhere; if it has seen this \
             client lately, {COMPARE}"
        ),
    }
}
