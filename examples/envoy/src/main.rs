//! Envoy's rate limit service: `tollgate-envoy --config FILE_OR_FOLDER [--redis URL]`.

use std::env::{self, VarError};
use std::{error::Error, ffi::OsString, process::ExitCode};

use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_envoy::{Options, Server, USAGE};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(format!("{name} is no UTF-8; write it as text")),
    }
}

async fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let text = |argument: OsString| argument.into_string().map_err(|other| format!("{other:?} is no UTF-8"));
    let arguments = env::args_os().skip(1).map(text).collect::<Result<Vec<_>, _>>()?;
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    let mut options = Options::read(arguments)?;
    options.key_secret = variable("TOLLGATE_KEY_SECRET")?;
    if options.redis.is_none() {
        options.redis = variable("TOLLGATE_REDIS_URL")?;
    }
    let server = Server::bind(&options).await?;
    println!("Listening on {}", server.address()?);
    let mut termination = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = termination.recv() => {}
            _ = ctrl_c() => {}
        }
    };
    server.run(stop).await
}
