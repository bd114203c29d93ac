//! All fields of a file. The reader and the JSON Schema use this one description.

use crate::{
    failure::FailurePolicy,
    headers::HeaderStyle,
    policy::{Algorithm, Unsettled},
};

/// A table with fixed fields.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) fields: &'static [&'static Field],
    /// Names that are no fields of this table although a reader may expect them, and the reason.
    pub(super) refused: &'static [(&'static str, &'static str)],
    /// The fields of which a table needs all of one row. Empty if all fields are optional.
    pub(super) required: &'static [&'static [&'static Field]],
}

/// A field of a table.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The description in the JSON Schema.
    pub(super) about: &'static str,
    /// A word or a field on which this field depends.
    pub(super) rule: Rule,
}

/// What a field excludes or needs beside it.
#[derive(Debug)]
pub(super) enum Rule {
    Free,
    /// The table has none of these fields.
    Without(&'static [&'static Field]),
    /// The table has this field with this word.
    With(&'static Field, &'static str),
}

/// The values of a field.
#[derive(Debug)]
pub(super) enum Kind {
    Duration,
    Flag,
    /// `true`, `false`, or a table of settings.
    FlagOrTable(&'static Table),
    /// A list of policy names.
    Names,
    Rate,
    /// A number above 0 and up to 1, or `false`.
    ShareOrOff,
    Table(&'static Table),
    /// A table with keys that the user chooses.
    TableOf(Keys, &'static Kind),
    Text,
    Whole {
        least: u32,
        most: u32,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The keys of a table that the user chooses.
#[derive(Debug)]
pub(super) enum Keys {
    Policies,
    Routes,
}

const TOKEN_BUCKET: &str = Algorithm::WORDS[3].0;

/// The words of `unsettled`.
pub(super) const UNSETTLED_WORDS: [(&str, Unsettled); 2] =
    [("charge", Unsettled::Charge), ("release", Unsettled::Release)];

/// The words of pairs of word and value.
const fn words<T, const N: usize>(pairs: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut index = 0;
    while index < N {
        words[index] = pairs[index].0;
        index += 1;
    }
    words
}

static ALGORITHM_WORDS: [&str; Algorithm::WORDS.len()] = words(&Algorithm::WORDS);
static FAILURE_WORDS: [&str; FailurePolicy::WORDS.len()] = words(&FailurePolicy::WORDS);
static UNSETTLED: [&str; UNSETTLED_WORDS.len()] = words(&UNSETTLED_WORDS);
static HEADER_WORDS: [&str; HeaderStyle::WORDS.len()] = words(&HeaderStyle::WORDS);

const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, kind, about, rule: Rule::Free }
}

const UNITS: Kind = Kind::Whole { least: 1, most: u32::MAX };

/// The file as a whole.
pub(super) static FILE: Table = Table {
    fields: &[&SCHEMA, &HEADERS, &SHADOW, &POLICIES, &DEFAULT, &ROUTES],
    refused: &[],
    required: &[&[&POLICIES, &DEFAULT]],
};

pub(super) static SCHEMA: Field =
    field("$schema", Kind::Text, "The address of this schema, for editors. It has no effect on the limits.");
pub(super) static HEADERS: Field =
    field("headers", Kind::Word(&HEADER_WORDS), "The style of the RateLimit fields. Defaults to \"draft-11\".");
pub(super) static SHADOW: Field = field(
    "shadow",
    Kind::Flag,
    "Whether the layer counts and reports, but refuses nothing and writes no fields. Defaults to false.",
);
pub(super) static POLICIES: Field =
    field("policies", Kind::TableOf(Keys::Policies, &Kind::Table(&POLICY)), "The policies, by name.");
pub(super) static DEFAULT: Field =
    field("default", Kind::Table(&DEFAULTS), "The settings of every request whose route has no settings of its own.");
pub(super) static ROUTES: Field = field(
    "routes",
    Kind::TableOf(Keys::Routes, &Kind::Table(&ROUTE)),
    "Settings of single routes, by \"/path\" or \"METHOD /path\". A field that a route leaves out is that of \
     `default`.",
);

/// A policy.
pub(super) static POLICY: Table = Table {
    fields: &[
        &RATE,
        &LIMIT,
        &WINDOW,
        &CONCURRENT,
        &ALGORITHM,
        &RESOLUTION,
        &BURST,
        &COUNT_REJECTED,
        &UNIT,
        &BAN_AFTER,
        &SHARDS,
        &HOLDS,
        &LEASE,
        &POLICY_SHADOW,
        &NEAR_LIMIT,
        &IN_CODE,
    ],
    refused: &[],
    required: &[&[&RATE], &[&LIMIT, &WINDOW], &[&CONCURRENT]],
};

pub(super) static RATE: Field = Field {
    name: "rate",
    kind: Kind::Rate,
    about: "Units per window: \"10/s\", \"60/min\", \"100/hour\", \"9500/day\" or \"3/500ms\".",
    rule: Rule::Without(&[&LIMIT, &WINDOW]),
};
pub(super) static LIMIT: Field = field("limit", UNITS, "Units per window, in place of `rate`.");
pub(super) static WINDOW: Field =
    field("window", Kind::Duration, "The window, up to 366 days, in place of `rate`: \"90s\" or \"1d\".");
pub(super) static CONCURRENT: Field = Field {
    name: "concurrent",
    kind: UNITS,
    about: "The units that a key may hold at once, in place of `rate`: a concurrency limit.",
    rule: Rule::Without(&RATES_ONLY),
};

/// The fields that a concurrency limit does not have, because it has no window and charges nothing.
pub(super) static RATES_ONLY: [&Field; 11] = [
    &RATE,
    &LIMIT,
    &WINDOW,
    &ALGORITHM,
    &RESOLUTION,
    &BURST,
    &COUNT_REJECTED,
    &BAN_AFTER,
    &SHARDS,
    &LEASE,
    &NEAR_LIMIT,
];

pub(super) static ALGORITHM: Field =
    field("algorithm", Kind::Word(&ALGORITHM_WORDS), "How units are counted. Defaults to \"log\", which is exact.");
pub(super) static RESOLUTION: Field = field(
    "resolution",
    Kind::Duration,
    "The resolution of a log, up to its window: bounds the memory of a large limit. Defaults to one microsecond.",
);
pub(super) static BURST: Field = Field {
    name: "burst",
    kind: UNITS,
    about: "The units that a full token bucket holds. Defaults to the limit.",
    rule: Rule::With(&ALGORITHM, TOKEN_BUCKET),
};
pub(super) static COUNT_REJECTED: Field =
    field("count-rejected", Kind::Flag, "Whether denied requests are counted. Defaults to false.");
pub(super) static UNIT: Field =
    field("unit", Kind::Text, "The unit that clients see, such as \"content-bytes\". Defaults to \"requests\".");
pub(super) static BAN_AFTER: Field =
    field("ban-after", Kind::Table(&BAN), "After this number of denials within a duration, a key is banned for it.");
pub(super) static SHARDS: Field = field(
    "shards",
    Kind::Whole { least: 1, most: 64 },
    "The number of counts of each key, for a key that is too hot for one node of a cluster. Defaults to 1.",
);

pub(super) static HOLDS: Field = field(
    "holds",
    Kind::FlagOrTable(&HOLD_SETTINGS),
    "Whether the policy holds units for costs that are known later, or the settings of its holds. Defaults to false; a \
     concurrency limit always holds.",
);
pub(super) static LEASE: Field = field(
    "lease",
    UNITS,
    "The largest block of units that a process takes at once and spends by itself, for keys that are checked many \
     thousand times a second. Defaults to no lease.",
);
pub(super) static IN_CODE: Field = field(
    "in-code",
    Kind::Flag,
    "Whether code charges the policy: a plan or a job. Without it, a policy that no entry charges is reported. \
     Defaults to false.",
);
pub(super) static POLICY_SHADOW: Field =
    field("shadow", Kind::Flag, "Whether the policy counts and reports, but refuses nothing. Defaults to false.");
pub(super) static NEAR_LIMIT: Field = field(
    "near-limit",
    Kind::ShareOrOff,
    "The share of the limit at which a key is reported as near it; false turns the report off. Defaults to 0.8.",
);

pub(super) static BAN: Table = Table { fields: &[&DENIALS, &FOR], refused: &[], required: &[&[&DENIALS, &FOR]] };

pub(super) static DENIALS: Field = field("denials", UNITS, "The number of denials that leads to a ban.");
pub(super) static FOR: Field =
    field("for", Kind::Duration, "The duration of the ban, and the time within which denials count, up to 366 days.");

pub(super) static HOLD_SETTINGS: Table =
    Table { fields: &[&TTL, &TYPICAL, &LONGEST, &WHEN_UNSETTLED], refused: &[], required: &[] };

pub(super) static TTL: Field = field(
    "ttl",
    Kind::Duration,
    "The time after which a hold that is not renewed ends by itself, up to 366 days. Defaults to \"60s\".",
);
pub(super) static TYPICAL: Field = field(
    "typical",
    Kind::Duration,
    "How long a hold typically lasts, up to 366 days: the longest Retry-After of a denial that holds cause. Defaults \
     to \"1s\".",
);
pub(super) static LONGEST: Field = field(
    "longest",
    Kind::Duration,
    "The longest age of a hold that is renewed in the background, up to 366 days: then it is settled, and its response \
     ends with an error. Defaults to no longest age.",
);
pub(super) static WHEN_UNSETTLED: Field = field(
    "unsettled",
    Kind::Word(&UNSETTLED),
    "What becomes of a hold that ends without a settlement. Defaults to \"charge\"; a concurrency limit always \
     releases.",
);

/// Fields of a policy that a reader may expect in a route or in the default.
const OF_A_POLICY: &str = "this is a field of a policy; write it in [policies.NAME], and name that policy in policies";

/// The settings of requests without a route of their own.
pub(super) static DEFAULTS: Table = Table {
    fields: &[&CHARGED, &COST, &COSTS, &ON_STORE_FAILURE],
    refused: &[
        ("exempt", "an exempt default would leave almost every request without a limit; write exempt in single routes"),
        ("rate", OF_A_POLICY),
        ("concurrent", OF_A_POLICY),
        ("holds", OF_A_POLICY),
        ("lease", OF_A_POLICY),
    ],
    required: &[&[&CHARGED]],
};

/// The settings of a route.
pub(super) static ROUTE: Table = Table {
    fields: &[&CHARGED, &COST, &COSTS, &ON_STORE_FAILURE, &EXEMPT],
    refused: &[("rate", OF_A_POLICY), ("concurrent", OF_A_POLICY), ("holds", OF_A_POLICY), ("lease", OF_A_POLICY)],
    required: &[],
};

pub(super) static CHARGED: Field = field("policies", Kind::Names, "The policies that a request is charged under.");
pub(super) static COST: Field = field("cost", UNITS, "The units that a request takes. Defaults to 1.");
pub(super) static COSTS: Field = field(
    "costs",
    Kind::TableOf(Keys::Policies, &Kind::Whole { least: 0, most: u32::MAX }),
    "Costs under single policies, by policy name, in place of `cost`. 0 charges nothing under that policy.",
);
pub(super) static ON_STORE_FAILURE: Field = field(
    "on-store-failure",
    Kind::Word(&FAILURE_WORDS),
    "What happens to a request when the store cannot answer. Defaults to \"open\".",
);
pub(super) static EXEMPT: Field = Field {
    name: "exempt",
    kind: Kind::Flag,
    about: "Whether the route has no limit. An exempt route has no other fields. Defaults to false.",
    rule: Rule::Without(&[&CHARGED, &COST, &COSTS, &ON_STORE_FAILURE]),
};
