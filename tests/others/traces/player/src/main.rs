//! Limiters that are crates: `tollgate-traces-player URL`, the address of a Redis with the module of redis-cell.
//!
//! Reads requests as lines of JSON, and writes an answer to each. Requests that come together are asked together.

mod governed;
mod peers;
mod tollgate_policies;

use std::{env, error::Error, time::Duration};

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use governed::Governed;
use peers::Peers;
use tollgate_policies::Tollgate;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Deserialize)]
struct Request {
    id: u64,
    limiter: String,
    key: String,
    weight: u32,
    limit: u32,
    /// In seconds.
    window: u32,
}

/// The wait that a denial tells.
enum Answer {
    Allowed,
    Denied(Duration),
}

#[derive(Clone)]
struct Limiters {
    tollgate: Tollgate,
    peers: Peers,
    governed: Governed,
}

impl Limiters {
    async fn ask(&self, request: &Request) -> Result<Answer> {
        match request.limiter.split_once(' ') {
            Some(("tollgate", algorithm)) => self.tollgate.ask(algorithm, request).await,
            None if request.limiter == "tower_governor" => self.governed.ask(request).await,
            _ => self.peers.ask(request).await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).ok_or("usage: tollgate-traces-player URL")?;
    let (tollgate, peers) = (Tollgate::open(&url)?, Peers::connect(&url).await?);
    let limiters = Limiters { tollgate, peers, governed: Governed::default() };
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Request = serde_json::from_str(&line)?;
        let limiters = limiters.clone();
        tokio::spawn(async move {
            let id = request.id;
            let line = match limiters.ask(&request).await {
                Ok(Answer::Allowed) => serde_json::json!({ "id": id, "allowed": true }),
                Ok(Answer::Denied(wait)) => {
                    serde_json::json!({ "id": id, "allowed": false, "wait": wait.as_secs_f64() * 1000.0 })
                }
                Err(error) => serde_json::json!({ "id": id, "error": error.to_string() }),
            };
            println!("{line}");
        });
    }
    Ok(())
}
