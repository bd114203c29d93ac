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
    /// A server closes its connections.
    Close,
    /// A server closes connections that have been idle for some time.
    CloseIdle,
    /// A server wants a login that clients do not have.
    NoLogin,
    /// The password has changed: connections are closed, and logins are refused.
    WrongLogin,
    /// The user may not run scripts.
    NoPermission,
    /// The clock of all servers steps.
    AheadSeconds,
    BackSeconds,
    AheadHour,
    BackHour,
    /// The clock of a server is 0.1 to 1 % fast or slow from then on.
    FastClock,
    SlowClock,
    /// The slots of a server move to the next one, key by key.
    Move,
    ClusterDown,
    /// Sentinels make the replica the master, which takes over all data. They agree one after the other.
    Failover,
    /// The master is lost. When the fault ends, its replica is the master, without the last writes.
    LoseMaster,
    /// Sentinels make the replica the master, as when an operator asks for it. The old one stays a master until the
    /// fault ends, and what it has counted meanwhile is lost.
    TwoMasters,
    /// The master is alone with one process and one sentinel. The other sentinels make the replica the master. When the
    /// fault ends, what the old one has counted meanwhile is lost.
    Split,
    /// Nothing passes between a process and a server: both ways, to the server, to the process.
    Cut,
    Deaf,
    Mute,
    Reset,
    /// Connections are forgotten: what is sent on them arrives nowhere, and neither side learns of it.
    HalfOpen,
    /// The server ends its side of its connections, and still does what arrives.
    HalfClosed,
    Slow,
    /// Bytes are late by up to 50 ms.
    Jitter,
    /// Replies arrive byte by byte.
    Dribble,
    /// Commands arrive in small pieces.
    Trickle,
    /// A process stands still.
    Pause,
    /// A process is killed, and a new one starts.
    Kill,
    /// The last runtime of a process ends, if it has several.
    EndRuntime,
    /// The last runtime of a process is not driven, if it has several.
    IdleRuntime,
    /// A handler blocks the thread of the first runtime.
    BlockThread,
    /// All handles of a limiter are dropped while calls run. A new limiter takes its place.
    DropHandles,
    /// [`Limiter::close`](tollgate::Limiter::close) beside calls.
    CloseLimiter,
}

impl Kind {
    pub(crate) const ALL: [Self; 45] = [
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
        Self::CloseIdle,
        Self::NoLogin,
        Self::WrongLogin,
        Self::NoPermission,
        Self::AheadSeconds,
        Self::BackSeconds,
        Self::AheadHour,
        Self::BackHour,
        Self::FastClock,
        Self::SlowClock,
        Self::Move,
        Self::ClusterDown,
        Self::Failover,
        Self::LoseMaster,
        Self::Cut,
        Self::Deaf,
        Self::Mute,
        Self::Reset,
        Self::HalfOpen,
        Self::HalfClosed,
        Self::Slow,
        Self::Jitter,
        Self::Dribble,
        Self::Trickle,
        Self::Pause,
        Self::Kill,
        Self::EndRuntime,
        Self::IdleRuntime,
        Self::BlockThread,
        Self::DropHandles,
        Self::CloseLimiter,
        Self::TwoMasters,
        Self::Split,
    ];

    /// Faults that leave two masters.
    pub(crate) const OF_TWO_MASTERS: [Self; 2] = [Self::TwoMasters, Self::Split];

    /// All others. Those with two masters are drawn after them, so that the worlds of a seed stay what they were.
    pub(crate) const DRAWN: &[Self] = Self::ALL.split_at(Self::ALL.len() - Self::OF_TWO_MASTERS.len()).0;

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
            Self::CloseIdle => "close-idle",
            Self::NoLogin => "no-login",
            Self::WrongLogin => "wrong-login",
            Self::NoPermission => "no-permission",
            Self::AheadSeconds => "ahead-5s",
            Self::BackSeconds => "back-5s",
            Self::AheadHour => "ahead-1h",
            Self::BackHour => "back-1h",
            Self::FastClock => "fast-clock",
            Self::SlowClock => "slow-clock",
            Self::Move => "move",
            Self::ClusterDown => "cluster-down",
            Self::Failover => "failover",
            Self::LoseMaster => "lose-master",
            Self::TwoMasters => "two-masters",
            Self::Split => "split",
            Self::Cut => "cut",
            Self::Deaf => "deaf",
            Self::Mute => "mute",
            Self::Reset => "reset",
            Self::HalfOpen => "half-open",
            Self::HalfClosed => "half-closed",
            Self::Slow => "slow",
            Self::Jitter => "jitter",
            Self::Dribble => "dribble",
            Self::Trickle => "trickle",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::EndRuntime => "end-runtime",
            Self::IdleRuntime => "idle-runtime",
            Self::BlockThread => "block-thread",
            Self::DropHandles => "drop-handles",
            Self::CloseLimiter => "close-limiter",
        }
    }

    /// Whether servers forget charges.
    pub(crate) fn loses_charges(self) -> bool {
        matches!(self, Self::Wipe | Self::Rewind | Self::LoseMaster) || self.leaves_two_masters()
    }

    /// Whether a server closes connections.
    pub(crate) fn closes_connections(self) -> bool {
        let by_end = matches!(self, Self::Crash | Self::Wipe | Self::Rewind | Self::Failover | Self::LoseMaster);
        by_end || matches!(self, Self::Close | Self::CloseIdle) || self.leaves_two_masters()
    }

    /// Whether two servers admit at the same time, of which one forgets what it has admitted.
    pub(crate) fn leaves_two_masters(self) -> bool {
        Self::OF_TWO_MASTERS.contains(&self)
    }

    /// Whether a server does nothing until the fault ends, and everything from then on.
    pub(crate) fn is_refusal(self) -> bool {
        let by_state = matches!(self, Self::Crash | Self::Loading | Self::Busy | Self::ClusterDown);
        by_state || matches!(self, Self::Full | Self::Replica | Self::TooFewReplicas)
    }

    /// Whether answers take longer than calls wait for them, although they come.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Slow | Self::Jitter | Self::Dribble | Self::Trickle)
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

    pub(crate) fn needs_sentinels(self) -> bool {
        matches!(self, Self::Failover | Self::LoseMaster) || self.leaves_two_masters()
    }

    pub(crate) fn needs_runtimes(self) -> bool {
        matches!(self, Self::EndRuntime | Self::IdleRuntime)
    }

    /// Whether the store and the way to it stay as they are.
    pub(crate) fn spares_store(self) -> bool {
        matches!(self, Self::Flush | Self::EndRuntime | Self::IdleRuntime)
    }

    /// Whether the local share of an instance begins anew, because a new limiter starts.
    pub(crate) fn starts_limiter(self) -> bool {
        matches!(self, Self::Kill | Self::DropHandles)
    }

    fn drift(self) -> Option<i64> {
        match self {
            Self::FastClock => Some(1_000),
            Self::SlowClock => Some(-1_000),
            _ => None,
        }
    }
}

/// How long sentinels wait after a split until they elect the replica, in milliseconds.
pub(crate) const ELECTED_AFTER: u64 = 200;

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

    /// How much faster a clock runs, in millionths: 0.1 to 1 %.
    pub(crate) fn drift(&self) -> Option<i64> {
        self.kind.drift().map(|thousandth| thousandth * (1 + (self.lasts % 10).cast_signed()))
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
