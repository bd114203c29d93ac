//! Finds a master through its sentinels.

use std::fmt;

use redis::{ConnectionAddr, ErrorKind, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use super::{
    announcer::Announcer, endpoint::Endpoint, error::is_invalid_data, progress::DialProgress, redact::Passwords,
    security::Security, url, wire::Wire,
};
use crate::error::ConfigError;

/// Sentinels and the name of the master that they monitor.
#[derive(Clone)]
pub(crate) struct Sentinels {
    sentinels: Vec<Endpoint>,
    /// The login, database and TLS settings of the master. Its "host" is the master's name.
    master: Endpoint,
}

/// A step towards the master.
enum Step {
    /// A sentinel has named this host and port.
    Named(String, u16),
    /// A server that reports the role of a master.
    Dialled(Wire),
}

impl Sentinels {
    /// Parses the URLs of the sentinels, and `master`: a name, or a URL with the name in place of the host.
    pub(crate) fn new(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
        security: &Security,
    ) -> Result<Self, ConfigError> {
        let sentinel = |url: &str| {
            let logins = security.sentinel_logins.clone();
            url::read_any(url, security).map(|endpoint| Endpoint { logins, ..endpoint })
        };
        let sentinels: Vec<_> = sentinels.into_iter().map(|url| sentinel(url.as_ref())).collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(url::invalid("there is no sentinel; give the URL of at least one"));
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let master = match master.contains("://") {
            true => url::read_any(master, security)?,
            // A login without a scheme would become part of the name, and errors show the name.
            false if !master.chars().all(is_name) => {
                return Err(url::invalid(
                    "a master's name has letters, digits and the characters .-_; write redis://user:password@mymaster \
                     for a login",
                ));
            }
            false => url::read_any("redis://unnamed", security)?.on_host(master.to_owned(), 0, None),
        };
        if master.host().is_empty() {
            return Err(url::invalid("the master has no name; write \"mymaster\" or redis://mymaster"));
        }
        if !master.is_encrypted() && sentinels.iter().any(Endpoint::is_encrypted) {
            let name = master.host();
            return Err(ConfigError::new(format!(
                "the sentinels are reached through TLS, but their master {name:?} is not, so a password would be sent \
                 in plain text; write rediss://{name} for the master"
            )));
        }
        security.check(&master)?;
        if sentinels.iter().any(|sentinel| matches!(sentinel.info.addr(), ConnectionAddr::Unix(_))) {
            return Err(url::invalid("sentinels are reached by TCP; write redis://host:26379"));
        }
        Ok(Self { sentinels, master })
    }

    /// Asks all sentinels at the same time, because the first one may be lost together with the machine of the master.
    /// Each server that one of them names is dialled once. Returns the first that reports the role of a master.
    pub(crate) async fn dial_master(&self, progress: &DialProgress) -> RedisResult<Wire> {
        let mut steps = JoinSet::new();
        for sentinel in self.sentinels.clone() {
            let (name, progress) = (self.master.host().to_owned(), progress.clone());
            steps.spawn(async move { named_by(&sentinel, &name, &progress).await });
        }
        let (mut named, mut failure) = (Vec::new(), None);
        while let Some(step) = steps.join_next().await {
            match step {
                Ok(Ok(Step::Dialled(wire))) => return Ok(wire),
                Ok(Ok(Step::Named(host, port))) => {
                    let (master, progress) =
                        (self.master.on_host(host, port, Some(Announcer::Sentinel)), progress.clone());
                    let address = master.info.addr().to_string();
                    if !named.contains(&address) {
                        named.push(address);
                        steps.spawn(async move { dialled(&master, &progress).await });
                    }
                }
                Ok(Err(error)) if failure.as_ref().is_none_or(|known| weight(&error) >= weight(known)) => {
                    failure = Some(error);
                }
                Ok(Err(_)) => {}
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| RedisError::from((ErrorKind::EmptySentinelList, "no sentinel answered"))))
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.sentinels.iter().chain([&self.master]).flat_map(Endpoint::secrets))
    }
}

/// How much an error says. A sentinel without the name says less than a failure: it may monitor other masters. A wrong
/// scheme or certificate says most.
fn weight(error: &RedisError) -> u8 {
    match error.kind() {
        _ if is_invalid_data(error) => 2,
        ErrorKind::MasterNameNotFoundBySentinel => 0,
        _ => 1,
    }
}

/// The master that a sentinel names.
async fn named_by(sentinel: &Endpoint, name: &str, progress: &DialProgress) -> RedisResult<Step> {
    let mut wire = Wire::dial(sentinel, progress).await?;
    let lookup = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).to_owned();
    match lookup.query_async::<Option<(String, u16)>>(&mut wire.connection).await? {
        Some((host, port)) => Ok(Step::Named(host, port)),
        None => Err(RedisError::from((
            ErrorKind::MasterNameNotFoundBySentinel,
            "no sentinel knows a master of this name",
            format!("correct the name {name} in the call of open_sentinel"),
        ))),
    }
}

/// A connection to a server that a sentinel has named, if the server is a master. A sentinel may lag behind a failover.
async fn dialled(server: &Endpoint, progress: &DialProgress) -> RedisResult<Step> {
    let mut wire = Wire::dial(server, progress).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut wire.connection).await?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(Step::Dialled(wire)),
        _ => Err(RedisError::from((ErrorKind::Io, "the server that a sentinel names is not a master yet"))),
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.master.host())?;
        f.debug_list().entries(self.sentinels.iter().map(|sentinel| sentinel.info.addr().to_string())).finish()
    }
}
