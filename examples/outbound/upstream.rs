//! An upstream that enforces its own quota, and the client of it.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{collections::VecDeque, io, str::FromStr};

use axum::{Router, http::StatusCode, routing::get};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate::{ConfigError, Policy};

use crate::Failure;

/// Calls per window, such as `50/s`.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) limit: u64,
    pub(crate) window: Duration,
}

impl FromStr for Rate {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let policy = Policy::parse("upstream", text)?;
        Ok(Self { limit: policy.limit(), window: policy.window().unwrap_or_default() })
    }
}

/// The number of times that a call is repeated, because the process that served the upstream has ended.
const TRIES: u64 = 10;

/// What the upstream answered.
pub(crate) enum Answer {
    Served,
    Refused,
}

/// A client of the upstream.
#[derive(Clone)]
pub(crate) struct Upstream {
    address: SocketAddr,
    rate: Rate,
}

impl Upstream {
    /// Starts the upstream at `address`, unless another process has started it.
    pub(crate) fn new(address: String, rate: Rate) -> Result<Self, Failure> {
        let address = address.parse().map_err(|_| format!("{address:?} is not an address like 127.0.0.1:4750"))?;
        let this = Self { address, rate };
        this.serve_if_free()?;
        Ok(this)
    }

    /// Calls the upstream. If the process that served it has ended, another process takes over.
    pub(crate) async fn call(&self) -> Result<Answer, Failure> {
        let mut failures = 0;
        loop {
            match get_status(self.address).await {
                Ok(StatusCode::TOO_MANY_REQUESTS) => return Ok(Answer::Refused),
                Ok(_) => return Ok(Answer::Served),
                Err(error) if failures == TRIES => return Err(error.into()),
                Err(_) => failures += 1,
            }
            self.serve_if_free()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn serve_if_free(&self) -> Result<(), Failure> {
        let listener = match TcpListener::bind(self.address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(()),
            listener => listener?,
        };
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let calls = Calls { rate: self.rate, recent: Arc::default() };
        let app = Router::new().route("/", get(move || async move { calls.judge(Instant::now()) }));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(())
    }
}

/// Sends a GET request on a connection of its own, and returns the status of the response.
///
/// A service uses an HTTP client, as `examples/reqwest_client` shows. This example has these few lines instead, because
/// a client library adds to the packages that each example has to compile.
async fn get_status(address: SocketAddr) -> io::Result<StatusCode> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    // The status line is `HTTP/1.1 200 OK`.
    let status = response.get("HTTP/1.1 ".len()..).and_then(|rest| StatusCode::from_bytes(rest.get(..3)?).ok());
    status.ok_or_else(|| io::Error::other("the upstream sent no status"))
}

/// The calls of the last window: a list, and nothing of tollgate, because it is the judge.
#[derive(Clone)]
struct Calls {
    rate: Rate,
    recent: Arc<Mutex<VecDeque<Instant>>>,
}

impl Calls {
    fn judge(&self, now: Instant) -> StatusCode {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        while recent.front().is_some_and(|call| now.duration_since(*call) >= self.rate.window) {
            recent.pop_front();
        }
        if recent.len() >= self.rate.limit as usize {
            return StatusCode::TOO_MANY_REQUESTS;
        }
        recent.push_back(now);
        StatusCode::OK
    }
}
