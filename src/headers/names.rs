//! The fields of a style that are sent under other names.

use std::{fmt, sync::Arc};

use http::{HeaderName, header::RETRY_AFTER};

use super::{RETRY_AFTER_MS, style::HeaderStyle};
use crate::error::ConfigError;

/// The fields of a style that have another name, each with that name. `None` if all have the style's own.
#[derive(Clone, Default)]
pub(super) struct OwnNames(Option<Arc<[(HeaderName, HeaderName)]>>);

impl OwnNames {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn are_none(&self) -> bool {
        self.0.is_none()
    }

    /// The name under which a field of the style is sent.
    pub(super) fn of<'a>(&'a self, field: &'a HeaderName) -> &'a HeaderName {
        let renamed = self.0.iter().flat_map(|names| names.iter());
        renamed.into_iter().find_map(|(of_style, own)| (of_style == field).then_some(own)).unwrap_or(field)
    }

    /// Adds a name, in place of the one that the field has.
    ///
    /// # Errors
    ///
    /// A field that the style does not send or that is no RateLimit field, or a name that another field has.
    pub(super) fn with(&self, style: HeaderStyle, field: HeaderName, own: HeaderName) -> Result<Self, ConfigError> {
        let is_wait = |name: &HeaderName| [RETRY_AFTER, RETRY_AFTER_MS].contains(name);
        let fields: Vec<&HeaderName> = style.names().iter().filter(|name| !is_wait(name)).collect();
        if !fields.contains(&&field) {
            return Err(ConfigError::new(format!(
                "the style {style} sends no field {field} that can have another name; write one of {fields:?}"
            )));
        }
        let is_taken = fields.iter().any(|other| **other != field && *self.of(other) == own);
        if is_taken || is_wait(&own) || has_a_meaning(&own) {
            return Err(ConfigError::new(format!("{own} is the name of another field; use another for {field}")));
        }
        let others = self.0.iter().flat_map(|names| names.iter()).filter(|(of_style, _)| *of_style != field);
        Ok(Self(Some(others.cloned().chain([(field.clone(), own)]).collect())))
    }
}

/// Fields whose values clients, proxies or HTTP itself act on: a number in one of them would break the response.
const WITH_A_MEANING: [&str; 23] = [
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "date",
    "etag",
    "expires",
    "host",
    "keep-alive",
    "last-modified",
    "link",
    "location",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "www-authenticate",
];
const FAMILIES_WITH_A_MEANING: [&str; 5] = ["access-control-", "content-", "grpc-", "proxy-", "sec-"];

fn has_a_meaning(name: &HeaderName) -> bool {
    let name = name.as_str();
    WITH_A_MEANING.contains(&name) || FAMILIES_WITH_A_MEANING.iter().any(|family| name.starts_with(family))
}

impl fmt::Debug for OwnNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flat_map(|names| names.iter())).finish()
    }
}
