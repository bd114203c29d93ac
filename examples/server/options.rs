//! Command line options of the server.

use std::{net::SocketAddr, time::Duration};

use tollgate::{Algorithm, HeaderStyle};

pub(crate) const USAGE: &str = "\
Usage: server [OPTIONS]

  --listen ADDR      address to listen on [127.0.0.1:3000]
  --redis URL        count in this Redis instead of in memory, for example redis://127.0.0.1:6379
  --config FILE      limits from this file (TOML), which is read again when it changes; examples/server/limits.toml
                     has the limits that the server has without this option
  --algorithm NAME   log, counter, fixed, token-bucket [log]
  --limit N          units that each client may spend per window [60]
  --window TIME      length of the window: 500ms, 60s, 5m, 1h, 1d [60s]
  --headers STYLE    draft-11, draft-07, draft-06, draft-03, x-ratelimit, x-ratelimit-epoch, envoy,
                     tower-governor, openai, none [draft-11]
  --hold-ttl TIME    time-to-live of holds: if a server dies, its tokens are charged and its uploads are free after
                     this time: 5s, 10m [60s]
  --deadline TIME    longest time that a check waits for Redis [50ms]
  --secret-file FILE the secret of the keys in Redis and of the fingerprints in logs, at least 16 bytes, without its
                     last line break
  --no-limits        leave out the layer, to measure the server without it; /generate and /upload keep theirs
  --no-metrics       leave out /metrics and /refused, and what they observe
  --no-page          leave out the page at /, which shows the limits and the store at work
  --log              write the events of the limits to standard output, also those of level debug, such as denials
";

pub(crate) struct Options {
    pub(crate) listen: String,
    pub(crate) redis: Option<String>,
    /// The file of the limits, in place of the next four options.
    pub(crate) config: Option<String>,
    pub(crate) algorithm: Algorithm,
    pub(crate) limit: u64,
    pub(crate) window: Duration,
    pub(crate) headers: HeaderStyle,
    pub(crate) hold_ttl: Duration,
    pub(crate) deadline: Duration,
    pub(crate) secret_file: Option<String>,
    /// Whether there is a layer.
    pub(crate) limited: bool,
    /// Whether requests are counted for operators.
    pub(crate) metrics: bool,
    /// Whether there is a page at `/`.
    pub(crate) page: bool,
    /// Whether denials are logged.
    pub(crate) log: bool,
}

impl Options {
    /// Parses the arguments. Returns `None` if one of them asks for help.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            listen: "127.0.0.1:3000".to_owned(),
            redis: None,
            config: None,
            algorithm: Algorithm::SlidingWindowLog,
            limit: 60,
            window: Duration::from_secs(60),
            headers: HeaderStyle::Draft11,
            hold_ttl: Duration::from_secs(60),
            deadline: Duration::from_millis(50),
            secret_file: None,
            limited: true,
            metrics: true,
            page: true,
            log: false,
        };
        let mut limits = Vec::new();
        while let Some(flag) = arguments.next() {
            if matches!(flag.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            if matches!(flag.as_str(), "--log" | "--no-limits" | "--no-metrics" | "--no-page") {
                options.log |= flag == "--log";
                options.limited &= flag != "--no-limits";
                options.metrics &= flag != "--no-metrics";
                options.page &= flag != "--no-page";
                continue;
            }
            let (flag, value) = match flag.split_once('=') {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (flag, arguments.next()),
            };
            let value = value.ok_or_else(|| format!("{flag} needs a value\n\n{USAGE}"))?;
            if ["--algorithm", "--headers", "--limit", "--window"].contains(&flag.as_str()) {
                limits.push(flag.clone());
            }
            let invalid = || format!("{flag}: {value:?} is not a valid value\n\n{USAGE}");
            match flag.as_str() {
                "--listen" => options.listen = value,
                "--redis" => options.redis = Some(value),
                "--config" => options.config = Some(value),
                "--algorithm" => options.algorithm = value.parse().map_err(|_| invalid())?,
                "--limit" => options.limit = value.parse().map_err(|_| invalid())?,
                "--window" => options.window = duration(&value).ok_or_else(invalid)?,
                "--headers" => options.headers = value.parse().map_err(|_| invalid())?,
                "--hold-ttl" => options.hold_ttl = duration(&value).ok_or_else(invalid)?,
                "--secret-file" => options.secret_file = Some(value),
                "--deadline" => options.deadline = duration(&value).ok_or_else(invalid)?,
                _ => return Err(format!("{flag} is not an option of this example\n\n{USAGE}")),
            }
        }
        match (&options.config, limits.first()) {
            (Some(file), Some(flag)) => Err(format!("{flag} and --config exclude one another: set it in {file}")),
            _ => Ok(Some(options)),
        }
    }

    pub(crate) fn print_commands_to_try(&self, address: SocketAddr) {
        let store = if self.redis.is_some() { "in Redis" } else { "in memory" };
        let limits = match &self.config {
            Some(file) => format!(
                "The limits are those in {file}, counted {store}. They follow the file within a second of a change.
The notes below hold for the limits in examples/server/limits.toml."
            ),
            None => format!(
                "Each client may spend {} units per {:?} ({:?}, counted {store}).
With --config examples/server/limits.toml, the limits are in a file, which may change while the server runs.",
                self.limit, self.window, self.algorithm,
            ),
        };
        let page = if self.page { "Open it in a browser: the page shows each request in its window.\n" } else { "" };
        println!(
            "Listening on http://{address}
{page}{limits}

  curl -i http://{address}/watch            costs 1 unit; allowed while the store is down
  curl -i http://{address}/search           costs 10 units; refused while the store is down
  curl -i -X POST http://{address}/login    5 per minute; denied attempts count too
  curl -i http://{address}/healthz          no limit
  curl -s http://{address}/quota            units left, without a charge
  curl -s http://{address}/metrics          Prometheus metrics of all requests
  curl -s http://{address}/refused          the clients that are refused most

  curl -i -X POST 'http://{address}/generate?estimate=100&actual=31&ms=5000'
                                            holds 100 of 1000 tokens a minute, and charges 31 after 5 seconds
  curl -iN 'http://{address}/upload?ms=5000'  streams for 5 seconds; three at once, on all servers together

  for i in $(seq 61); do curl -s -o /dev/null -w '%{{http_code}} ' http://{address}/watch; done; echo",
        );
    }
}

fn duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit_at].parse().ok()?;
    let millis = match &text[unit_at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}
