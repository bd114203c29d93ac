//! `Serialize` for decisions, by hand. The field names are public: [the module's page](super#as-json) documents them.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::decision::{Decision, PolicyDecision};
use crate::verdict::Source;

/// Serializes a struct with these fields, in this order.
macro_rules! serialize_fields {
    ($serializer:expr, $name:literal, { $($field:literal: $value:expr),+ $(,)? }) => {{
        let mut fields = $serializer.serialize_struct($name, [$($field),+].len())?;
        $(fields.serialize_field($field, &$value)?;)+
        fields.end()
    }};
}

/// Whole seconds, rounded up as in the header fields, so that a client that waits this long is not early.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn micros(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)
}

/// Serializes as [documented](super#as-json).
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields!(serializer, "Decision", {
            "allowed": self.is_allowed(),
            "source": self.source(),
            "available": self.available(),
            "retry_after": self.retry_after().map(seconds),
            "retry_after_us": self.retry_after().map(micros),
            "policies": self.policies(),
        })
    }
}

/// Serializes as [documented](super#as-json). The partition key is left out, because it may identify a client.
impl Serialize for PolicyDecision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields!(serializer, "PolicyDecision", {
            "name": self.policy.name(),
            "limit": self.policy.limit(),
            "window": self.policy.window().map(seconds),
            "capacity": self.policy.capacity(),
            "cost": self.cost,
            "violated": self.violated,
            "shadow": self.is_shadow(),
            "would_deny": self.would_deny,
            "available": self.available,
            "retry_after": self.retry_after.map(seconds),
            "retry_after_us": self.retry_after.map(micros),
            "next": seconds(self.next),
            "reset": seconds(self.reset),
            "ban": self.ban.map(seconds),
        })
    }
}

/// Serializes as the name of the variant in snake case: `"store"`, `"deny_cache"`.
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Closed => "closed",
            Self::DenyCache => "deny_cache",
            Self::Lease => "lease",
            Self::Local => "local",
            Self::Open => "open",
            Self::Overloaded => "overloaded",
            Self::Policy => "policy",
            Self::Queue => "queue",
            Self::Store => "store",
            Self::WaitersFull => "waiters_full",
        })
    }
}
