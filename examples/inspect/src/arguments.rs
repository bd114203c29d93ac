//! The arguments of the program.

use std::{env, ffi::OsString, time::Duration};

use tollgate::{Key, Policy};

use crate::commands::{Command, Form};
use crate::files::{read_certificates, read_secret, read_url};
use crate::key::{self, Addresses};
use crate::server::{HashTags, Servers, Settings};
use crate::{policies, time};

/// What the program is asked for.
pub(crate) enum Request {
    /// A command about one client.
    Client(Box<Arguments>),
    /// `reset --all`.
    ResetAll(Settings),
}

pub(crate) struct Arguments {
    pub(crate) command: Command,
    pub(crate) key: Key,
    /// How the key may have to be written if nothing is counted for it.
    pub(crate) key_hints: Vec<String>,
    pub(crate) policies: Vec<Policy>,
    /// What is left out of what was asked for.
    pub(crate) left_out: Vec<String>,
    pub(crate) settings: Settings,
}

/// The arguments as they are written. Files are not read yet.
#[derive(Default)]
struct Given {
    key: Vec<String>,
    policies: Vec<String>,
    config: Option<String>,
    redis: Option<String>,
    cluster: Vec<String>,
    sentinels: Vec<String>,
    master: Option<String>,
    prefix: Option<String>,
    secret_file: Option<String>,
    plain_keys: bool,
    /// `reset --all`, and its confirmation.
    all: bool,
    yes: bool,
    hash_tags: Option<HashTags>,
    addresses: Addresses,
    timeout: Option<Duration>,
    certificates: Option<String>,
    client_certificate: Option<String>,
    client_key: Option<String>,
}

/// The environment's URL of Redis, and its secret of the keys.
const REDIS: &str = "TOLLGATE_REDIS";
const SECRET: &str = "TOLLGATE_KEY_SECRET";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

impl Request {
    /// Parses the arguments and reads the files that they name. Returns `None` if one of them asks for help.
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let arguments: Vec<String> = arguments
            .map(|argument| argument.into_string().map_err(|argument| format!("{argument:?} is not UTF-8")))
            .collect::<Result<_, _>>()?;
        if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help")) {
            return Ok(None);
        }
        let mut arguments = arguments.into_iter();
        let form = Form::parse(arguments.next().as_deref())?;
        let given = Given::parse(arguments)?;
        if given.all || given.yes {
            form.check_all(given.all, given.yes, !given.key.is_empty() || given.names_policies())?;
            return Ok(Some(Self::ResetAll(given.settings()?)));
        }
        Arguments::of_client(form, given).map(|arguments| Some(Self::Client(Box::new(arguments))))
    }
}

impl Arguments {
    fn of_client(form: Form, mut given: Given) -> Result<Self, String> {
        let command = form.take_amount(&mut given.key)?;
        let is_fingerprint = key::is_fingerprint(&given.key);
        let (key, mut policies) =
            (key::parse(&given.key, &given.addresses)?, policies::read(&given.policies, given.config.as_deref())?);
        // Before policies are left out: a command that changes one policy never chooses it itself.
        form.check(&policies)?;
        let left_out = if is_fingerprint { leave_out_shards(&mut policies)? } else { Vec::new() };
        let key_hints = key::hints(&given.key);
        let mut settings = given.settings()?;
        // A fingerprint is hashed already.
        settings.plain_keys |= is_fingerprint;
        Ok(Self { command, key, key_hints, policies, left_out, settings })
    }
}

impl Given {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut given = Self::default();
        while let Some(argument) = arguments.next() {
            if !argument.starts_with("--") {
                given.key.push(argument);
                continue;
            }
            let (option, value) = match argument.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            match option {
                "--all" => given.all = flag(option, value)?,
                "--yes" => given.yes = flag(option, value)?,
                "--plain-keys" => given.plain_keys = flag(option, value)?,
                "--keep-nat64" => given.addresses.keep_nat64 = flag(option, value)?,
                _ if !TAKE_A_VALUE.contains(&option) => {
                    return Err(format!("{option} is not an option of this program; see --help"));
                }
                _ => {
                    let value = value.or_else(|| arguments.next());
                    given.set(option, value.ok_or_else(|| format!("{option} needs a value; see --help"))?)?;
                }
            }
        }
        Ok(given)
    }

    fn set(&mut self, option: &str, value: String) -> Result<(), String> {
        match option {
            "--policy" => self.policies.push(value),
            "--cluster" => self.cluster.push(value),
            "--sentinel" => self.sentinels.push(value),
            "--config" => once(option, &mut self.config, value)?,
            "--redis" => once(option, &mut self.redis, value)?,
            "--master" => once(option, &mut self.master, value)?,
            "--prefix" => once(option, &mut self.prefix, value)?,
            "--secret-file" => once(option, &mut self.secret_file, value)?,
            "--nat64-prefix" => once(option, &mut self.addresses.nat64_prefix, value)?,
            "--ca" => once(option, &mut self.certificates, value)?,
            "--client-cert" => once(option, &mut self.client_certificate, value)?,
            "--client-key" => once(option, &mut self.client_key, value)?,
            "--hash-tags" => {
                let tags = HashTags::parse(&value);
                let tags = tags.map_err(|_| format!("{option}: {value:?} is neither a number nor none"))?;
                once(option, &mut self.hash_tags, tags)?;
            }
            _ => {
                let timeout = time::parse(&value);
                let timeout = timeout.ok_or_else(|| format!("{option}: {value:?} is not a time: write 500ms or 5s"))?;
                once(option, &mut self.timeout, timeout)?;
            }
        }
        Ok(())
    }

    /// Whether a policy is named.
    fn names_policies(&self) -> bool {
        !self.policies.is_empty() || self.config.is_some()
    }

    /// Reads the secret and the certificates, and chooses the servers.
    fn settings(self) -> Result<Settings, String> {
        let secret = match &self.secret_file {
            Some(path) => Some(read_secret(path)?),
            None => env::var_os(SECRET).map(OsString::into_encoded_bytes),
        };
        let client_certificate = match (&self.client_certificate, &self.client_key) {
            (Some(chain), Some(key)) => Some((read_certificates(chain)?, read_certificates(key)?)),
            (None, None) => None,
            _ => return Err("--client-cert and --client-key belong together: write both".to_owned()),
        };
        Ok(Settings {
            servers: servers(self.redis, self.cluster, self.sentinels, self.master)?,
            prefix: self.prefix,
            secret,
            plain_keys: self.plain_keys,
            hash_tags: self.hash_tags,
            timeout: self.timeout.unwrap_or(DEFAULT_TIMEOUT),
            certificates: self.certificates.map(|path| read_certificates(&path)).transpose()?,
            client_certificate,
        })
    }
}

/// Leaves out the policies to whose counts a fingerprint does not lead. Returns what to say about them, or an error if
/// no other policy is left.
fn leave_out_shards(policies: &mut Vec<Policy>) -> Result<Vec<String>, String> {
    let why = "shards, whose Redis keys do not contain the fingerprint of the client: write the plain key";
    let sharded: Vec<Policy> = policies.extract_if(.., |policy| policy.shards() > 1).collect();
    match sharded.first() {
        Some(policy) if policies.is_empty() => {
            Err(format!("policy {} has {why}, or name other policies with --policy", policy.name()))
        }
        _ => Ok(sharded.iter().map(|policy| format!("policy {} is left out: it has {why}", policy.name())).collect()),
    }
}

/// The options with a value.
const TAKE_A_VALUE: [&str; 14] = [
    "--ca",
    "--client-cert",
    "--client-key",
    "--cluster",
    "--config",
    "--hash-tags",
    "--master",
    "--nat64-prefix",
    "--policy",
    "--prefix",
    "--redis",
    "--secret-file",
    "--sentinel",
    "--timeout",
];

fn flag(option: &str, value: Option<String>) -> Result<bool, String> {
    match value {
        None => Ok(true),
        Some(value) => Err(format!("{option} takes no value: leave out {value:?}")),
    }
}

fn once<T>(option: &str, setting: &mut Option<T>, value: T) -> Result<(), String> {
    match setting.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("{option} is there twice: leave one out")),
    }
}

fn servers(
    redis: Option<String>,
    cluster: Vec<String>,
    sentinels: Vec<String>,
    master: Option<String>,
) -> Result<Servers, String> {
    let urls = |urls: Vec<String>| urls.into_iter().map(read_url).collect::<Result<Vec<_>, _>>();
    if usize::from(redis.is_some()) + usize::from(!cluster.is_empty()) + usize::from(!sentinels.is_empty()) > 1 {
        return Err("--redis, --cluster and --sentinel exclude one another: write one of them".to_owned());
    }
    match (sentinels.is_empty(), master) {
        (false, Some(master)) => return Ok(Servers::Sentinels { urls: urls(sentinels)?, master: read_url(master)? }),
        (false, None) => return Err("--sentinel needs --master NAME, as the sentinels know the master".to_owned()),
        (true, Some(_)) => return Err("--master needs --sentinel URL".to_owned()),
        (true, None) => {}
    }
    if !cluster.is_empty() {
        return Ok(Servers::Cluster(urls(cluster)?));
    }
    match redis.or_else(|| env::var(REDIS).ok()) {
        Some(url) => Ok(Servers::Single(read_url(url)?)),
        None => Err("no Redis: write --redis redis://127.0.0.1:6379, --cluster URL or --sentinel URL".to_owned()),
    }
}
