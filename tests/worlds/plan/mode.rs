//! Modes: what callers ask of the crate.

use tollgate::{Algorithm, Policy, policy::HoldSettings};

use super::month::{self, OF_A_MONTH};
use crate::time::ms;

/// Units of most policies.
pub(crate) const LIMIT: u64 = 20;
/// The limit beside leases: a block pays only for a key that is checked often.
const LEASED: u64 = 20 * LIMIT;
/// The window of most policies, in milliseconds.
pub(crate) const WINDOW: u64 = 1_000;
/// The limit of concurrency limits.
pub(crate) const SLOTS: u64 = 3;
/// The time-to-live of holds, in milliseconds: a renewal in each third finds the store, after an outage with slots and
/// the second until its end is noticed.
pub(crate) const TTL: u64 = 3_000;
/// How long a block of a lease may outlive its process, in milliseconds.
pub(crate) const BLOCK_TTL: u64 = 2_000;
/// The shards of a policy.
pub(crate) const SHARDS: u32 = 3;
/// How long callers wait for their turn, in milliseconds.
pub(crate) const MAX_WAIT: u64 = 300;
/// A window that does not end within a world, and a limit that is not reached.
const LONG: u64 = 60_000;
const HIGH: u64 = 100_000;
/// A limit of a long window that is reached.
const SCARCE: u64 = 300;
/// How long a ban lasts, in milliseconds, and the denials before it.
const BAN: u64 = 500;
const DENIALS: u32 = 30;
/// The same of bans that grow, and how long the longest one lasts. The third is longer than the window.
pub(crate) const FEW_DENIALS: u32 = 10;
pub(crate) const LONGEST_BAN: u64 = 4 * BAN;

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Mode {
    Log,
    Bucket,
    Window,
    Counter,
    Ban,
    Shards,
    Lease,
    /// Some checks under a lease, some without it. Without it, the policy has no holds either: other processes may
    /// overlook blocks.
    LeaseOnOff,
    /// The same with a policy that always has holds.
    LeaseBesideHolds,
    Acquire,
    /// Charges of as much as fits.
    Parts,
    Holds,
    Slots,
    /// Two keys, the second of which has room for all.
    Pair,
    /// Two keys, whose charges are compared in the end.
    Both,
    /// Checks whose charges are counted in the end.
    Tally,
    /// Holds that are settled with other costs, which are counted in the end.
    Bill,
    LocalLog,
    LocalHolds,
    LocalSlots,
    /// Requests to a service under each failure policy.
    WebOpen,
    WebClosed,
    WebLocal,
    /// Requests whose units are held, and settled by their responses and bills.
    WebHolds,
    /// The same, and the charges are counted in the end.
    WebBill,
    /// The same under `fail_local`, and with a limit that is reached.
    WebOwed,
    WebSlots,
    /// Under limits that are replaced while the service runs, and under plans that a look-up finds.
    WebLive,
    WebPlans,
    /// Requests to a service whose counts are in the memory of its process.
    Memory,
    MemoryBill,
    MemorySlots,
    /// Charges of as much as fits under the other algorithms.
    PartsBucket,
    PartsWindow,
    PartsCounter,
    /// Checks beside units that are charged or given back by hand.
    CreditLog,
    CreditBucket,
    CreditWindow,
    CreditCounter,
    /// Two policies, of which the first one that has room is charged.
    FirstOf,
    /// Each call has a policy of its own, so that it is known what a server has done for it.
    Told,
    /// A window of a calendar ends while callers call, and the clocks of processes differ.
    Calendar,
    /// Bans by hand, and counts that are reset: beside checks, blocks, holds, and in the memory of a process.
    HandLog,
    HandLease,
    HandHolds,
    HandMemory,
    /// The share of an instance, where the store counts the instances.
    Discovered,
    /// Requests that wait for their turn in front of the handler.
    WebWaits,
    /// Each ban of a key is longer than the last.
    GrowingBan,
    /// Callers that wait for a slot.
    WaitSlots,
    /// Calls of another service that wait for their turn, and pauses that it asks for.
    Upstream,
}

impl Mode {
    pub(crate) const ALL: [Self; 51] = [
        Self::Log,
        Self::Bucket,
        Self::Window,
        Self::Counter,
        Self::Ban,
        Self::Shards,
        Self::Lease,
        Self::LeaseOnOff,
        Self::LeaseBesideHolds,
        Self::Acquire,
        Self::Parts,
        Self::Holds,
        Self::Slots,
        Self::Pair,
        Self::Both,
        Self::Tally,
        Self::Bill,
        Self::LocalLog,
        Self::LocalHolds,
        Self::LocalSlots,
        Self::WebOpen,
        Self::WebClosed,
        Self::WebLocal,
        Self::WebHolds,
        Self::WebBill,
        Self::WebOwed,
        Self::WebSlots,
        Self::WebLive,
        Self::WebPlans,
        Self::Memory,
        Self::MemoryBill,
        Self::MemorySlots,
        Self::PartsBucket,
        Self::PartsWindow,
        Self::PartsCounter,
        Self::CreditLog,
        Self::CreditBucket,
        Self::CreditWindow,
        Self::CreditCounter,
        Self::FirstOf,
        Self::Told,
        Self::Calendar,
        Self::HandLog,
        Self::HandLease,
        Self::HandHolds,
        Self::HandMemory,
        Self::Discovered,
        Self::WebWaits,
        Self::GrowingBan,
        Self::WaitSlots,
        Self::Upstream,
    ];
    /// Those that are drawn first, and the others, which are drawn after all else: so the worlds of a seed stay what
    /// they were.
    const HALVES: (&[Self], &[Self]) = Self::ALL.split_at(32);
    pub(crate) const FIRST: &[Self] = Self::HALVES.0;
    pub(crate) const LATER: &[Self] = Self::HALVES.1;

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Bucket => "bucket",
            Self::Window => "window",
            Self::Counter => "counter",
            Self::Ban => "ban",
            Self::Shards => "shards",
            Self::Lease => "lease",
            Self::LeaseOnOff => "lease-on-off",
            Self::LeaseBesideHolds => "lease-beside-holds",
            Self::Acquire => "acquire",
            Self::Parts => "parts",
            Self::Holds => "holds",
            Self::Slots => "slots",
            Self::Pair => "pair",
            Self::Both => "both",
            Self::Tally => "tally",
            Self::Bill => "bill",
            Self::LocalLog => "local-log",
            Self::LocalHolds => "local-holds",
            Self::LocalSlots => "local-slots",
            Self::WebOpen => "web-open",
            Self::WebClosed => "web-closed",
            Self::WebLocal => "web-local",
            Self::WebHolds => "web-holds",
            Self::WebBill => "web-bill",
            Self::WebOwed => "web-owed",
            Self::WebSlots => "web-slots",
            Self::WebLive => "web-live",
            Self::WebPlans => "web-plans",
            Self::Memory => "memory",
            Self::MemoryBill => "memory-bill",
            Self::MemorySlots => "memory-slots",
            Self::PartsBucket => "parts-bucket",
            Self::PartsWindow => "parts-window",
            Self::PartsCounter => "parts-counter",
            Self::CreditLog => "credit-log",
            Self::CreditBucket => "credit-bucket",
            Self::CreditWindow => "credit-window",
            Self::CreditCounter => "credit-counter",
            Self::FirstOf => "first-of",
            Self::Told => "told",
            Self::Calendar => "calendar",
            Self::HandLog => "hand-log",
            Self::HandLease => "hand-lease",
            Self::HandHolds => "hand-holds",
            Self::HandMemory => "hand-memory",
            Self::Discovered => "discovered",
            Self::WebWaits => "web-waits",
            Self::GrowingBan => "growing-ban",
            Self::WaitSlots => "wait-slots",
            Self::Upstream => "upstream",
        }
    }

    /// The policy of most checks. The name of the mode keeps the counts of modes apart.
    pub(crate) fn policy(self) -> Policy {
        let policy = match self {
            _ if self.is_slots() => Policy::concurrent(self.name(), SLOTS),
            Self::Both => Policy::new(self.name(), SCARCE, ms(LONG)),
            Self::WebOwed => Policy::new(self.name(), 2 * SCARCE, ms(LONG)),
            Self::Tally | Self::Bill | Self::WebBill | Self::MemoryBill => Policy::new(self.name(), HIGH, ms(LONG)),
            Self::Calendar => Policy::calendar(self.name(), OF_A_MONTH, month::calendar()),
            _ => Policy::new(self.name(), self.limit(), ms(WINDOW)),
        };
        policy.and_then(|policy| self.complete(policy).validated()).expect("the policies of modes are valid")
    }

    fn complete(self, policy: Policy) -> Policy {
        match self {
            _ if self.is_bucket() => policy.with_algorithm(Algorithm::TokenBucket),
            _ if self.is_window() => policy.with_algorithm(Algorithm::FixedWindow),
            _ if self.is_counter() => policy.with_algorithm(Algorithm::SlidingWindowCounter),
            Self::Ban => policy.ban_after(DENIALS, ms(BAN)),
            Self::GrowingBan => policy.ban_after(FEW_DENIALS, ms(BAN)).growing_to(ms(LONGEST_BAN)),
            Self::Shards => policy.with_shards(SHARDS),
            Self::Lease | Self::HandLease => policy.with_lease(LEASED / 2),
            _ if self.is_holds() || self == Self::LeaseBesideHolds => {
                policy.with_holds(HoldSettings::new().with_ttl(ms(TTL)))
            }
            _ => policy,
        }
    }

    /// The limit of a window of [`WINDOW`].
    pub(crate) fn limit(self) -> u64 {
        if self.is_leased() { LEASED } else { LIMIT }
    }

    /// The policy of the second key of a check.
    pub(crate) fn second_policy(self) -> Option<Policy> {
        let window = if self == Self::Both { LONG } else { WINDOW };
        let has_second = matches!(self, Self::Pair | Self::Both);
        has_second.then(|| Policy::new("second", HIGH, ms(window)).expect("the policy is valid"))
    }

    /// The policy of some checks, in place of [`Mode::policy`].
    pub(crate) fn other_policy(self) -> Option<Policy> {
        let lease = || self.policy().with_lease(LEASED / 2).validated().expect("the lease is below the limit");
        matches!(self, Self::LeaseOnOff | Self::LeaseBesideHolds).then(lease)
    }

    pub(crate) fn is_slots(self) -> bool {
        matches!(self, Self::Slots | Self::LocalSlots | Self::WebSlots | Self::MemorySlots | Self::WaitSlots)
    }

    pub(crate) fn is_holds(self) -> bool {
        self.is_slots()
            || self.is_settled()
            || matches!(self, Self::Holds | Self::Bill | Self::LocalHolds | Self::HandHolds)
    }

    /// Whether some checks are spent from blocks.
    pub(crate) fn is_leased(self) -> bool {
        matches!(self, Self::Lease | Self::LeaseOnOff | Self::LeaseBesideHolds | Self::HandLease)
    }

    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::LocalLog | Self::LocalHolds | Self::LocalSlots | Self::WebLocal | Self::WebOwed)
            || self == Self::Discovered
    }

    /// Whether callers send requests to a service.
    pub(crate) fn is_web(self) -> bool {
        self.is_memory() && self != Self::HandMemory
            || self.is_settled()
            || matches!(self, Self::WebOpen | Self::WebClosed | Self::WebLocal | Self::WebSlots)
            || matches!(self, Self::WebLive | Self::WebPlans | Self::WebWaits)
    }

    /// The window as fields show it. Slots have none.
    pub(crate) fn window_in_seconds(self) -> u64 {
        self.policy().window().map_or(0, |window| window.as_secs())
    }

    /// Whether callers wait for their turn.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Acquire | Self::WebWaits | Self::WaitSlots | Self::Upstream)
    }

    /// Whether a denied client who is alone knows exactly when it may come back.
    pub(crate) fn tells_the_wait(self) -> bool {
        matches!(self, Self::WebOpen | Self::WebClosed | Self::WebPlans | Self::Memory)
    }

    /// Whether the layer settles what it holds.
    pub(crate) fn is_settled(self) -> bool {
        matches!(self, Self::WebHolds | Self::WebBill | Self::WebOwed | Self::MemoryBill)
    }

    /// Whether the counts are in the memory of a process.
    pub(crate) fn is_memory(self) -> bool {
        matches!(self, Self::Memory | Self::MemoryBill | Self::MemorySlots | Self::HandMemory)
    }

    /// Whether the units of the window do not leave it within a world.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Self::Both | Self::Tally | Self::Bill | Self::WebBill | Self::WebOwed | Self::MemoryBill)
            || self == Self::Calendar
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |mode: &Self| mode.name() == text;
        Self::ALL.into_iter().find(named).ok_or_else(|| format!("there is no mode {text}"))
    }
}
