//! Envoy's rate limit service: `tollgate-envoy --config FILE_OR_FOLDER [--redis URL]`.

use std::{env, error::Error, process::ExitCode};

use tokio::signal::{
    ctrl_c,
    unix::{SignalKind, signal},
};
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

async fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    if env::args().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    let mut options = Options::read(env::args().skip(1))?;
    options.key_secret = env::var("TOLLGATE_KEY_SECRET").ok();
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
