//! The arguments of the program.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use tollgate::HeaderStyle;

/// What the program prints for `--help` and for wrong arguments.
pub const USAGE: &str = "\
tollgate-envoy --config PATH [options]

  --config PATH      a file of one domain, or a folder of such files, in the form of envoyproxy/ratelimit
  --redis URL        the store that all instances share; without it, this process counts in memory
  --listen ADDRESS   where Envoy calls the service; 127.0.0.1:8081 by default
  --metrics ADDRESS  serves /metrics, /healthz and /readyz by HTTP; not by default
  --deadline TIME    how long a call may take; 15ms by default, below the 20 ms that Envoy waits
  --headers STYLE    the fields that Envoy adds to responses: draft-11 (default), draft-07, x-ratelimit, none, ...
  --instances N      how many instances share the store, or auto; needed by on_store_failure: local

The variable TOLLGATE_REDIS_URL is a URL of Redis that no list of processes shows. The variable TOLLGATE_KEY_SECRET
hashes the keys in Redis with a secret.";

/// How the service runs.
#[derive(Clone)]
pub struct Options {
    /// The file or folder of the configuration.
    pub config: PathBuf,
    /// The URL of Redis; `None` for counts in memory.
    pub redis: Option<String>,
    /// Where the service listens.
    pub listen: SocketAddr,
    /// Where the metrics are.
    pub metrics: Option<SocketAddr>,
    /// How long a call may take.
    pub deadline: Duration,
    /// The fields of responses.
    pub headers: HeaderStyle,
    /// The number of instances for the local fallback: `None` without one, `Some(None)` if the store counts them.
    pub instances: Option<Option<u32>>,
    /// Hashes the keys in Redis.
    pub key_secret: Option<String>,
}

impl Options {
    /// The defaults.
    pub fn new(config: impl Into<PathBuf>) -> Self {
        Self {
            config: config.into(),
            redis: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            metrics: None,
            deadline: Duration::from_millis(15),
            headers: HeaderStyle::Draft11,
            instances: None,
            key_secret: None,
        }
    }

    /// Reads the arguments of the program.
    ///
    /// # Errors
    ///
    /// What is wrong with them, and what to write.
    pub fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::new("");
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value, or is no option\n\n{USAGE}"))?;
            match name.as_str() {
                "--config" => options.config = value.into(),
                "--redis" => options.redis = Some(value),
                "--listen" => options.listen = parse(&name, &value)?,
                "--metrics" => options.metrics = Some(parse(&name, &value)?),
                "--deadline" => options.deadline = deadline(&value)?,
                "--headers" => options.headers = parse(&name, &value)?,
                "--instances" if value == "auto" => options.instances = Some(None),
                "--instances" => options.instances = Some(Some(parse(&name, &value)?)),
                _ => return Err(format!("{name} is no option\n\n{USAGE}")),
            }
        }
        if options.config.as_os_str().is_empty() {
            return Err(format!("--config is missing\n\n{USAGE}"));
        }
        Ok(options)
    }

    /// Whether rules may fail local. A store in memory never fails.
    pub(crate) fn has_local(&self) -> bool {
        self.redis.is_none() || self.instances.is_some()
    }

    /// Whether the limiter has a local fallback.
    pub(crate) fn has_fallback(&self) -> bool {
        self.redis.is_some() && self.instances.is_some()
    }
}

/// Without the password of Redis and the secret.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("config", &self.config).field("listen", &self.listen).finish_non_exhaustive()
    }
}

fn parse<T: FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{name} {value}: {error}"))
}

fn deadline(value: &str) -> Result<Duration, String> {
    let millis = value.strip_suffix("ms").and_then(|millis| millis.parse().ok()).filter(|millis| *millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| format!("--deadline {value}: write milliseconds, such as 15ms"))
}
