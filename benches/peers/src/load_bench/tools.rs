//! The load generators and their arguments.

use std::process::{Command, Stdio};
use std::{fs, path::PathBuf, time::Duration};

use super::{outcome::Outcome, readers};
use crate::{Result, args::Args, report::Report};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tool {
    Oha,
    H2load,
    Wrk,
    Hey,
    Autocannon,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    Http1,
    /// Without TLS, with prior knowledge.
    Http2,
}

/// Requests in flight: as many connections over HTTP/1.1, or four with a part of them each over HTTP/2.
pub const IN_FLIGHT: u64 = 32;
const HTTP2_CONNECTIONS: u64 = 4;

/// How much a generator sends.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    Requests(u64),
    Time(Duration),
    /// An open loop: so many requests a second for this time, and latencies from when a request was due.
    Rate(f64, Duration),
}

/// The generators that are installed, with their versions.
pub struct Programs<'a> {
    args: &'a Args,
    pub installed: Vec<(Tool, String)>,
    directory: PathBuf,
}

impl Protocol {
    pub const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
        }
    }
}

impl Tool {
    pub const ALL: [Self; 5] = [Self::Oha, Self::H2load, Self::Wrk, Self::Hey, Self::Autocannon];

    pub fn name(self) -> &'static str {
        match self {
            Self::Oha => "oha",
            Self::H2load => "h2load",
            Self::Wrk => "wrk",
            Self::Hey => "hey",
            Self::Autocannon => "autocannon",
        }
    }

    /// hey needs TLS for HTTP/2, and the others have none.
    pub fn speaks(self, protocol: Protocol) -> bool {
        protocol == Protocol::Http1 || matches!(self, Self::Oha | Self::H2load)
    }

    /// wrk ends after a time only.
    pub fn counts_requests(self) -> bool {
        self != Self::Wrk
    }

    fn requests_option(self) -> &'static str {
        if self == Self::Autocannon { "-a" } else { "-n" }
    }

    /// The option for a time, and the unit of seconds.
    fn time_option(self) -> [&'static str; 2] {
        match self {
            Self::Oha | Self::Hey => ["-z", "s"],
            Self::H2load => ["-D", ""],
            Self::Wrk => ["-d", "s"],
            Self::Autocannon => ["-d", ""],
        }
    }
}

/// Writes what wrk has measured as JSON, because it prints no 99.9th percentile.
const WRK_SCRIPT: &str = r#"done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('\n{"requests":%d,"us":%d,"denied":%d,"failed":%d,"p50":%d,"p99":%d,"p999":%d}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
"#;

impl<'a> Programs<'a> {
    pub fn find(args: &'a Args, report: &mut Report) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("tollgate-load-{}", std::process::id()));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("wrk.lua"), WRK_SCRIPT)?;
        let mut programs = Self { args, installed: Vec::new(), directory };
        for tool in Tool::ALL {
            match programs.version(tool) {
                Some(version) => programs.installed.push((tool, version)),
                None => report.leave_out(tool.name(), "install it: benches/load does"),
            }
        }
        Ok(programs)
    }

    pub fn tools(&self, protocol: Protocol) -> impl Iterator<Item = Tool> {
        self.installed.iter().map(|(tool, _)| *tool).filter(move |tool| tool.speaks(protocol))
    }

    fn path(&self, tool: Tool) -> &str {
        match tool {
            Tool::Oha => self.args.oha.as_deref().unwrap_or("oha"),
            Tool::Autocannon => self.args.autocannon.as_deref().unwrap_or("autocannon"),
            _ => tool.name(),
        }
    }

    fn version(&self, tool: Tool) -> Option<String> {
        let option = if tool == Tool::Wrk { "-v" } else { "--version" };
        let mut output = Command::new(self.path(tool)).arg(option).output().ok()?;
        if tool == Tool::Hey {
            // It does not know its version, but its package does.
            output = Command::new("dpkg-query").args(["--showformat", "${Version}", "--show", "hey"]).output().ok()?;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
        Some(text.split([' ', '/', '-', '\n', 'v']).find(is_version).unwrap_or("of unknown version").to_owned())
    }

    /// Runs a generator, and reads what it has measured.
    pub fn run(&self, tool: Tool, protocol: Protocol, amount: Amount, url: &str) -> Result<Outcome> {
        let log = self.directory.join("h2load.log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new(self.path(tool));
        self.arguments(&mut command, tool, protocol, amount);
        if tool == Tool::H2load {
            command.arg("--log-file").arg(&log);
        }
        let output = command.arg(url).stdin(Stdio::null()).output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let outcome = match tool {
            Tool::Oha => readers::oha(&stdout),
            Tool::H2load => readers::h2load(&stdout, &fs::read_to_string(&log).unwrap_or_default()),
            Tool::Wrk => readers::wrk(&stdout),
            Tool::Hey => readers::hey(&stdout),
            Tool::Autocannon => readers::autocannon(&stdout),
        };
        outcome.map_err(|error| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("{}: {error}; it ended with {} and printed:\n{errors}{stdout}", tool.name(), output.status).into()
        })
    }

    fn arguments(&self, command: &mut Command, tool: Tool, protocol: Protocol, amount: Amount) {
        let connections = match protocol {
            Protocol::Http1 => IN_FLIGHT,
            Protocol::Http2 => HTTP2_CONNECTIONS,
        };
        let streams = (IN_FLIGHT / connections).to_string();
        match tool {
            Tool::Oha => command.args(["--no-tui", "--output-format", "json", "-p", &streams]),
            Tool::H2load => command.args(["-m", &streams]),
            Tool::Wrk => command.args(["-t", "1", "-s"]).arg(self.directory.join("wrk.lua")),
            Tool::Hey => command.args(["-o", "csv"]),
            Tool::Autocannon => command.args(["--json", "--no-progress"]),
        };
        match (tool, protocol) {
            (Tool::Oha, Protocol::Http2) => command.arg("--http2"),
            (Tool::H2load, Protocol::Http1) => command.arg("--h1"),
            _ => command,
        };
        command.args(["-c", &connections.to_string()]);
        if let Amount::Rate(rate, _) = amount {
            command.args(["--latency-correction", "-q", &format!("{rate:.0}")]);
        }
        match amount {
            Amount::Requests(number) => command.args([tool.requests_option(), &number.to_string()]),
            Amount::Time(time) | Amount::Rate(_, time) => {
                // Some of the generators know whole seconds only.
                let [option, unit] = tool.time_option();
                command.args([option, &format!("{}{unit}", time.as_secs_f64().ceil().max(1.0))])
            }
        };
    }
}

impl Drop for Programs<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
