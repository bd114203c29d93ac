//! A server that refuses, and logs how clients behave: `tollgate-others-server CERTIFICATE`.
//!
//! Writes its certificate to the file, prints its two addresses as JSON, and ends when its standard input does. Both
//! ports have HTTP/1.1 and HTTP/2. `/429/ID`, `/503/ID` and `/outage/ID` refuse; each ID has a budget of its own.
//! `/log` has the requests of each path.

mod log;
mod refusals;
mod tls;

use std::{env, error::Error, fs, io};

use axum::{Router, middleware::from_fn_with_state, routing::get};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::{server::conn::auto::Builder, service::TowerToHyperService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use log::Log;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args().nth(1).ok_or("usage: tollgate-others-server CERTIFICATE")?;
    let (acceptor, certificate) = tls::self_signed()?;
    fs::write(file, certificate)?;
    let log = Log::default();
    let app = refusals::routes()?.layer(from_fn_with_state(log.clone(), log::record));
    let app = app.route("/log", get(log::show).with_state(log));
    let (plain, encrypted) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let (http, https) = (plain.local_addr()?, encrypted.local_addr()?);
    println!("{}", serde_json::json!({ "http": format!("http://{http}"), "https": format!("https://{https}") }));
    let routes = app.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = plain.accept().await {
            tokio::spawn(serve(stream, routes.clone()));
        }
    });
    tokio::spawn(async move {
        while let Ok((stream, _)) = encrypted.accept().await {
            let (acceptor, routes) = (acceptor.clone(), app.clone());
            tokio::spawn(async move {
                match acceptor.accept(stream).await {
                    Ok(stream) => serve(stream, routes).await,
                    Err(error) => eprintln!("a client ends the handshake: {error}"),
                }
            });
        }
    });
    tokio::task::spawn_blocking(|| io::copy(&mut io::stdin().lock(), &mut io::sink())).await??;
    Ok(())
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) {
    let service = TowerToHyperService::new(routes);
    // An error is a client that has closed the connection.
    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}
