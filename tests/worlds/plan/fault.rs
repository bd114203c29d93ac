//! Faults: what goes wrong, when, for how long and where.

use std::{fmt, str::FromStr};

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Kind {
    /// A server stands still with its connections open.
    Freeze,
    /// A server crashes and comes back with its data.
    Crash,
    /// A server comes back without data and scripts.
    Wipe,
    /// A server comes back with the data of some time before, as after a failover.
    Rewind,
    Loading,
    Busy,
    Full,
    Replica,
    TooFewReplicas,
    /// A server accepts no connections, and closes those that it has.
    Crowded,
    /// A server forgets its scripts.
    Flush,
    /// A server closes its connections, as it does with idle ones.
    Close,
    /// The clock of all servers steps.
    AheadSeconds,
    BackSeconds,
    AheadHour,
    BackHour,
    /// The clock of a server runs a thousandth faster from then on.
    Drift,
    /// The slots of a server move to the next one, key by key.
    Move,
    ClusterDown,
    /// Nothing passes between a process and a server: both ways, to the server, to the process.
    Cut,
    Deaf,
    Mute,
    Reset,
    Slow,
    /// Replies arrive byte by byte.
    Dribble,
    /// A process stands still.
    Pause,
    /// A process is killed, and a new one starts.
    Kill,
    /// The second runtime of a process ends.
    EndRuntime,
}

impl Kind {
    pub(crate) const ALL: [Self; 28] = [
        Self::Freeze,
        Self::Crash,
        Self::Wipe,
        Self::Rewind,
        Self::Loading,
        Self::Busy,
        Self::Full,
        Self::Replica,
        Self::TooFewReplicas,
        Self::Crowded,
        Self::Flush,
        Self::Close,
        Self::AheadSeconds,
        Self::BackSeconds,
        Self::AheadHour,
        Self::BackHour,
        Self::Drift,
        Self::Move,
        Self::ClusterDown,
        Self::Cut,
        Self::Deaf,
        Self::Mute,
        Self::Reset,
        Self::Slow,
        Self::Dribble,
        Self::Pause,
        Self::Kill,
        Self::EndRuntime,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Crash => "crash",
            Self::Wipe => "wipe",
            Self::Rewind => "rewind",
            Self::Loading => "loading",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Replica => "replica",
            Self::TooFewReplicas => "too-few-replicas",
            Self::Crowded => "crowded",
            Self::Flush => "flush",
            Self::Close => "close",
            Self::AheadSeconds => "ahead-5s",
            Self::BackSeconds => "back-5s",
            Self::AheadHour => "ahead-1h",
            Self::BackHour => "back-1h",
            Self::Drift => "drift",
            Self::Move => "move",
            Self::ClusterDown => "cluster-down",
            Self::Cut => "cut",
            Self::Deaf => "deaf",
            Self::Mute => "mute",
            Self::Reset => "reset",
            Self::Slow => "slow",
            Self::Dribble => "dribble",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::EndRuntime => "end-runtime",
        }
    }

    /// Whether servers forget charges.
    pub(crate) fn loses_charges(self) -> bool {
        matches!(self, Self::Wipe | Self::Rewind)
    }

    /// The step of the servers' clocks in seconds.
    pub(crate) fn clock_step(self) -> Option<i64> {
        match self {
            Self::AheadSeconds => Some(5),
            Self::BackSeconds => Some(-5),
            Self::AheadHour => Some(3_600),
            Self::BackHour => Some(-3_600),
            _ => None,
        }
    }

    pub(crate) fn needs_cluster(self) -> bool {
        matches!(self, Self::Move | Self::ClusterDown)
    }
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// When it starts and how long it lasts, in milliseconds.
    pub(crate) at: u64,
    pub(crate) lasts: u64,
    pub(crate) process: usize,
    pub(crate) server: usize,
}

impl Fault {
    pub(crate) fn end(&self) -> u64 {
        self.at + self.lasts
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, at, lasts, process, server } = self;
        write!(f, "{}@{at}+{lasts}:p{process}:s{server}", kind.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no fault: write crash@1200+300:p0:s0");
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (name, rest) = text.split_once('@').ok_or_else(wrong)?;
        let (at, rest) = rest.split_once('+').ok_or_else(wrong)?;
        let (lasts, rest) = rest.split_once(":p").ok_or_else(wrong)?;
        let (process, server) = rest.split_once(":s").ok_or_else(wrong)?;
        let index = |text: &str| usize::try_from(number(text)?).map_err(|_| wrong());
        Ok(Self {
            kind: Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(wrong)?,
            at: number(at)?,
            lasts: number(lasts)?,
            process: index(process)?,
            server: index(server)?,
        })
    }
}
