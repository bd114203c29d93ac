//! The entries `hold` and `settle`, which name a hold.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

/// What the entries of a descriptor say about holds, with the name that the client or Envoy has given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role<'a> {
    None,
    Hold(&'a str),
    Settle(&'a str),
    /// A mistake in the actions of a route.
    Both,
}

impl<'a> Role<'a> {
    const HOLD: &'static str = "hold";
    const SETTLE: &'static str = "settle";

    pub(super) fn is_name(key: &str) -> bool {
        matches!(key, Self::HOLD | Self::SETTLE)
    }

    pub(super) fn of(entries: &[&'a Entry]) -> Self {
        let mut role = Self::None;
        for entry in entries {
            role = match (role, entry.key.as_str()) {
                (Self::None, Self::HOLD) => Self::Hold(&entry.value),
                (Self::None, Self::SETTLE) => Self::Settle(&entry.value),
                (_, Self::HOLD | Self::SETTLE) => Self::Both,
                (role, _) => role,
            };
        }
        role
    }
}
