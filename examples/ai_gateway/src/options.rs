//! The arguments of the program.

use std::time::Duration;

const USAGE: &str = "\
Usage: tollgate-ai-gateway [OPTIONS]

  --listen ADDRESS     127.0.0.1:3000 by default; port 0 is any free port
  --redis URL          shares the limits with other instances; without it, they are in memory
  --deadline MS        milliseconds that an answer of Redis may take; 50 by default
  --upstream URL       such as http://127.0.0.1:8000; without it, a scripted one in this process
  --included TOKENS    a month that an organisation has paid for; 100000 by default
  --credits TOKENS     a year that it spends after those; 50000 by default
  --hold-ttl SECONDS   after which what a killed process has held is charged; 300 by default
  --charge-afterwards  holds a single token instead of the estimate, to show what that does to a budget";

/// What the command line has set.
pub(crate) struct Options {
    pub(crate) listen: String,
    pub(crate) redis: Option<String>,
    pub(crate) deadline: Duration,
    pub(crate) upstream: Option<String>,
    pub(crate) included: u64,
    pub(crate) credits: u64,
    pub(crate) hold_ttl: Duration,
    pub(crate) charge_afterwards: bool,
}

impl Options {
    /// # Errors
    ///
    /// What to write instead, if an argument is unknown or has no value.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, &'static str> {
        let mut options = Self {
            listen: "127.0.0.1:3000".to_owned(),
            redis: None,
            deadline: Duration::from_millis(50),
            upstream: None,
            included: 100_000,
            credits: 50_000,
            hold_ttl: Duration::from_secs(300),
            charge_afterwards: false,
        };
        while let Some(name) = arguments.next() {
            if name == "--charge-afterwards" {
                options.charge_afterwards = true;
                continue;
            }
            let value = arguments.next().ok_or(USAGE)?;
            let number = || value.parse().map_err(|_| USAGE);
            match &*name {
                "--listen" => options.listen = value,
                "--redis" => options.redis = Some(value),
                "--deadline" => options.deadline = Duration::from_millis(number()?),
                "--upstream" => options.upstream = Some(value),
                "--included" => options.included = number()?,
                "--credits" => options.credits = number()?,
                "--hold-ttl" => options.hold_ttl = Duration::from_secs(number()?),
                _ => return Err(USAGE),
            }
        }
        Ok(options)
    }
}
