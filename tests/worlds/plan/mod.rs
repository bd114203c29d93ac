//! The plan of a world: all that it is made of. The same plan is the same world, byte for byte.

pub(crate) mod fault;
pub(crate) mod features;
pub(crate) mod mode;
pub(crate) mod month;
pub(crate) mod swarm;

use std::{fmt, str::FromStr};

use self::{fault::Fault, mode::Mode};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Plan {
    /// The seed of what callers do, of jitter, and of the crate's random numbers.
    pub(crate) seed: u64,
    pub(crate) modes: Vec<Mode>,
    /// One server, or the masters of a cluster.
    pub(crate) servers: usize,
    /// The sentinels of the one server, which then has a replica. 0 for none.
    pub(crate) sentinels: usize,
    pub(crate) processes: usize,
    /// The number of runtimes of each process.
    pub(crate) runtimes: usize,
    /// The number of callers of each process.
    pub(crate) callers: usize,
    /// The delay of the network, one way, and its jitter, in milliseconds.
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    /// For how long callers call, in milliseconds.
    pub(crate) load: u64,
    pub(crate) faults: Vec<Fault>,
    /// The observers of all limiters.
    pub(crate) watch: Watch,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Watch {
    Nobody,
    Calm,
    /// They panic at every second event.
    Panics,
}

impl Plan {
    pub(crate) fn is_cluster(&self) -> bool {
        self.servers > 1
    }

    /// The servers that have data, and then the sentinels.
    pub(crate) fn all_servers(&self) -> usize {
        if self.sentinels > 0 { self.servers + 1 + self.sentinels } else { self.servers }
    }

    /// Whether a fault can take place in this world.
    pub(crate) fn has_place_for(&self, fault: &Fault) -> bool {
        let kind = fault.kind;
        fault.process < self.processes
            && fault.server < self.all_servers()
            && (self.is_cluster() || !kind.needs_cluster())
            && (self.sentinels > 0 || !kind.needs_sentinels())
            && (self.runtimes > 1 || !kind.needs_runtimes())
    }

    /// Whether the store counts the instances. One that does not know their number yet refuses what fails local, which
    /// only the callers of that mode expect.
    pub(crate) fn counts_instances(&self) -> bool {
        let expects = |mode: &Mode| *mode == Mode::Discovered || !mode.is_local();
        self.modes.contains(&Mode::Discovered) && self.modes.iter().all(expects)
    }

    /// The longest time without a moment between two faults. The faults are in the order of their beginnings.
    pub(crate) fn longest_outage(&self) -> u64 {
        let (mut longest, mut from, mut until) = (0, 0, 0);
        for fault in &self.faults {
            if fault.at > until {
                from = fault.at;
            }
            until = until.max(fault.end());
            longest = longest.max(until - from);
        }
        longest
    }

    /// When the last fault has ended.
    pub(crate) fn healed_at(&self) -> u64 {
        self.faults.iter().map(Fault::end).max().unwrap_or(0)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |items: Vec<String>| if items.is_empty() { "-".to_owned() } else { items.join(",") };
        write!(
            f,
            "seed={} modes={} servers={} {}processes={} runtimes={} callers={} delay={} jitter={} load={} faults={}{}",
            self.seed,
            join(self.modes.iter().map(ToString::to_string).collect()),
            self.servers,
            if self.sentinels > 0 { format!("sentinels={} ", self.sentinels) } else { String::new() },
            self.processes,
            self.runtimes,
            self.callers,
            self.delay,
            self.jitter,
            self.load,
            join(self.faults.iter().map(ToString::to_string).collect()),
            match self.watch {
                Watch::Nobody => "",
                Watch::Calm => " watch=calm",
                Watch::Panics => " watch=panics",
            },
        )
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let field = |name: &str| {
            let found = text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| format!("the plan lacks {name}="))
        };
        let number = |name: &str| field(name)?.parse::<u64>().map_err(|_| format!("{name} is no number"));
        let index = |name: &str| usize::try_from(number(name)?).map_err(|_| format!("{name} is too large"));
        let list = |name: &str| Ok::<_, String>(field(name)?.split(',').filter(|item| *item != "-"));
        Ok(Self {
            seed: number("seed")?,
            modes: list("modes")?.map(str::parse).collect::<Result<_, _>>()?,
            servers: index("servers")?,
            sentinels: if text.contains("sentinels=") { index("sentinels")? } else { 0 },
            processes: index("processes")?,
            runtimes: index("runtimes")?,
            callers: index("callers")?,
            delay: number("delay")?,
            jitter: number("jitter")?,
            load: number("load")?,
            faults: list("faults")?.map(str::parse).collect::<Result<_, _>>()?,
            watch: match field("watch") {
                Ok("calm") => Watch::Calm,
                Ok("panics") => Watch::Panics,
                Ok(other) => return Err(format!("watch={other}: write calm or panics")),
                Err(_) => Watch::Nobody,
            },
        })
    }
}
