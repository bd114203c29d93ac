//! The fields of an allowed response, written before the response exists.

use http::{HeaderMap, HeaderValue};

use super::{
    fields::Fields,
    names::{RATELIMIT, RATELIMIT_POLICY},
};

/// The fields of the response to an allowed request. The layer writes them before it calls the service, so that it need
/// not keep the decision, which is several times as large.
pub(crate) enum AllowedFields {
    /// The decision has no verdict, or the style has no fields.
    None,
    /// One policy in the style `Draft11`, the common case. It needs no set of fields, because the style only appends.
    Draft11 { policy: HeaderValue, limit: HeaderValue },
    /// Boxed, because a set is large and the other styles are rare.
    Set(Box<Fields>),
}

impl AllowedFields {
    /// Merges the fields into the headers of a response, as [`Fields::apply`] does.
    #[inline]
    pub(crate) fn apply(self, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::Draft11 { policy, limit } => {
                headers.append(RATELIMIT_POLICY, policy);
                headers.append(RATELIMIT, limit);
            }
            Self::Set(fields) => fields.apply(headers),
        }
    }
}

impl From<Fields> for AllowedFields {
    fn from(fields: Fields) -> Self {
        if fields.is_empty() { Self::None } else { Self::Set(Box::new(fields)) }
    }
}
