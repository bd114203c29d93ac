//! The command line.

use crate::Result;

pub const USAGE: &str =
    "usage: peers redis|lua|memory|http|network [--seconds N] [--redis-cell PATH] [--json FILE] [--svg FILE]

  --seconds N        how long each figure is measured, over all rounds
  --redis-cell PATH  the redis-cell module (.so), to measure CL.THROTTLE as well
  --json FILE        write all figures
  --svg FILE         draw the decisions per second (redis)";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    Redis,
    Lua,
    Memory,
    Http,
    Network,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Lua => "lua",
            Self::Memory => "memory",
            Self::Http => "http",
            Self::Network => "network",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Redis, Self::Lua, Self::Memory, Self::Http, Self::Network].into_iter().find(|mode| mode.name() == name)
    }

    /// Each mode ends within about two minutes.
    fn default_seconds(self) -> f64 {
        match self {
            // It measures some hundred figures.
            Self::Lua => 0.2,
            Self::Redis | Self::Memory | Self::Http | Self::Network => 2.0,
        }
    }
}

#[derive(Debug)]
pub struct Args {
    pub mode: Mode,
    pub seconds: f64,
    pub redis_cell: Option<String>,
    pub json: Option<String>,
    pub svg: Option<String>,
}

impl Args {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mode = args.next().as_deref().and_then(Mode::parse).ok_or(USAGE)?;
        let mut parsed = Self { mode, seconds: mode.default_seconds(), redis_cell: None, json: None, svg: None };
        while let Some(option) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
            match option.as_str() {
                "--seconds" => parsed.seconds = value()?.parse()?,
                "--redis-cell" => parsed.redis_cell = Some(value()?),
                "--json" => parsed.json = Some(value()?),
                "--svg" => parsed.svg = Some(value()?),
                _ => return Err(format!("{option}?\n{USAGE}").into()),
            }
        }
        if !(parsed.seconds > 0.0 && parsed.seconds <= 3_600.0) {
            return Err("--seconds has to be above 0 and at most 3600".into());
        }
        Ok(parsed)
    }
}
