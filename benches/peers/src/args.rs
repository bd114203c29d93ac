//! Command line arguments.

use crate::Result;

pub const USAGE: &str =
    "usage: peers redis|cluster|shards|hot|lua|memory|http|network|fill|outage|queue|load [--seconds N] [--quick]
             [--redis-cell PATH] [--throttlecrab PATH] [--server PATH] [--oha PATH] [--autocannon PATH] [--json FILE]
             [--svg FILE] [--page FILE]

  --seconds N        time to measure each figure, summed over all rounds; in mode outage, half of the outage;
                     in mode queue, half of the time in which all callers can be served
  --quick            only show that the mode runs: small states, and a moment for each figure
  --redis-cell PATH  measure CL.THROTTLE as well, with the redis-cell module at PATH (.so)
  --throttlecrab PATH
                     measure throttlecrab-server as well, the program at PATH (cargo install throttlecrab-server)
  --server PATH      the example server that mode load measures; benches/load builds it
  --oha PATH, --autocannon PATH
                     the programs of these names, if they are not on the PATH (only in mode load)
  --json FILE        write all figures as JSON
  --svg FILE         draw the figures (only in the modes redis, network, fill, outage, queue and load)
  --page FILE        write the tables of mode load into this page";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    Redis,
    Cluster,
    Shards,
    Hot,
    Lua,
    Memory,
    Http,
    Network,
    Fill,
    Outage,
    Queue,
    Load,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Cluster => "cluster",
            Self::Shards => "shards",
            Self::Hot => "hot",
            Self::Lua => "lua",
            Self::Memory => "memory",
            Self::Http => "http",
            Self::Network => "network",
            Self::Fill => "fill",
            Self::Outage => "outage",
            Self::Queue => "queue",
            Self::Load => "load",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [
            Self::Redis,
            Self::Cluster,
            Self::Shards,
            Self::Hot,
            Self::Lua,
            Self::Memory,
            Self::Http,
            Self::Network,
            Self::Fill,
            Self::Outage,
            Self::Queue,
            Self::Load,
        ]
        .into_iter()
        .find(|mode| mode.name() == name)
    }

    /// The modes that draw, in the order of the usage.
    const DRAWING: [Self; 6] = [Self::Redis, Self::Network, Self::Fill, Self::Outage, Self::Queue, Self::Load];

    /// Default of `--seconds`: each mode ends within about two minutes, and `redis` within four.
    fn default_seconds(self) -> f64 {
        match self {
            // This mode measures more than a hundred figures.
            Self::Lua => 0.2,
            // Enough requests for the 99.9th percentile of each round: twelve minutes in all.
            Self::Load => 15.0,
            _ => 2.0,
        }
    }
}

#[derive(Debug)]
pub struct Args {
    pub mode: Mode,
    pub seconds: f64,
    pub quick: bool,
    pub redis_cell: Option<String>,
    pub throttlecrab: Option<String>,
    pub server: Option<String>,
    pub oha: Option<String>,
    pub autocannon: Option<String>,
    pub json: Option<String>,
    pub svg: Option<String>,
    pub page: Option<String>,
}

impl Args {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mode = args.next().as_deref().and_then(Mode::parse).ok_or(USAGE)?;
        let seconds = mode.default_seconds();
        let mut parsed = Self {
            mode,
            seconds,
            quick: false,
            redis_cell: None,
            throttlecrab: None,
            server: None,
            oha: None,
            autocannon: None,
            json: None,
            svg: None,
            page: None,
        };
        while let Some(option) = args.next() {
            if option == "--quick" {
                (parsed.quick, parsed.seconds) = (true, 0.005);
                continue;
            }
            let mut value = || args.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
            match option.as_str() {
                "--seconds" => parsed.seconds = number(&value()?)?,
                "--redis-cell" => parsed.redis_cell = Some(value()?),
                "--throttlecrab" => parsed.throttlecrab = Some(value()?),
                "--server" => parsed.server = Some(value()?),
                "--oha" => parsed.oha = Some(value()?),
                "--autocannon" => parsed.autocannon = Some(value()?),
                "--page" => parsed.page = Some(value()?),
                "--json" => parsed.json = Some(value()?),
                "--svg" => parsed.svg = Some(value()?),
                _ => return Err(format!("unknown option {option}\n{USAGE}").into()),
            }
        }
        if parsed.svg.is_some() && !Mode::DRAWING.contains(&mode) {
            let drawing = Mode::DRAWING.map(Mode::name).join(", ");
            return Err(format!("--svg: mode {} draws nothing; the modes that draw are {drawing}", mode.name()).into());
        }
        if !(parsed.seconds > 0.0 && parsed.seconds <= 3_600.0) {
            return Err("--seconds must be greater than 0 and at most 3600".into());
        }
        Ok(parsed)
    }
}

impl Args {
    /// All of the values, which are in ascending order, or the first ones with `--quick`.
    pub fn some_of<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        &all[..if self.quick { all.len().div_ceil(2) } else { all.len() }]
    }
}

fn number(text: &str) -> Result<f64> {
    text.parse().map_err(|_| format!("--seconds {text}: not a number, write for example --seconds 0.5").into())
}
