//! Sets of fields, merged into a response that may already have some of them.

use std::{cmp::Reverse, time::Duration};

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::duration::{millis_up, number, read_duration, read_number, whole_seconds};
use super::style::{HeaderStyle, Merge};
use super::{RATELIMIT, RATELIMIT_POLICY, RETRY_AFTER_MS, names::OwnNames};

/// Fields to be merged into a response, in one [`HeaderStyle`].
#[derive(Clone, Debug)]
pub struct HeaderFields {
    style: HeaderStyle,
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
    names: OwnNames,
}

impl HeaderFields {
    /// Creates an empty set of fields in `style`.
    pub fn new(style: HeaderStyle) -> Self {
        Self { style, fields: SmallVec::new(), names: OwnNames::NONE }
    }

    /// Sets the names under which the fields are sent.
    pub(super) fn with_names(self, names: OwnNames) -> Self {
        Self { names, ..self }
    }

    /// Adds a field. Its name and the style decide how [`apply`](Self::apply) merges the field.
    pub fn push(&mut self, name: HeaderName, value: HeaderValue) {
        self.fields.push((name, value));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Adds the fields of a rejection: `Retry-After` if a wait helps, the same wait `in_millis` if they are wanted, and
    /// `Cache-Control: no-store`.
    pub(super) fn push_rejection(&mut self, wait: Option<Duration>, in_millis: bool) {
        if let Some(wait) = wait {
            self.push(RETRY_AFTER, number(whole_seconds(wait)));
            if in_millis {
                self.push(RETRY_AFTER_MS, number(millis_up(wait).max(1)));
            }
        }
        self.push(CACHE_CONTROL, NO_STORE);
    }

    /// Merges the fields into the headers of a response, as [`HeaderWriter::write`](super::HeaderWriter::write) says.
    pub fn apply(mut self, headers: &mut HeaderMap) {
        for limit in self.style.single_limits() {
            if !limit.iter().any(|name| headers.contains_key(self.names.of(name))) {
                continue;
            }
            if self.is_stricter_than(limit, headers) {
                for name in *limit {
                    headers.remove(self.names.of(name));
                }
            } else {
                self.fields.retain(|(name, _)| !limit.contains(name));
            }
        }
        let is_refusal = self.fields.iter().any(|(name, _)| *name == RETRY_AFTER);
        for (field, value) in self.fields {
            let name = self.names.of(&field).clone();
            match HeaderStyle::merge(&field) {
                Merge::Longest => insert_longest(headers, name, value),
                Merge::IfAbsent => {
                    headers.entry(name).or_insert(value);
                }
                Merge::Append => {
                    headers.append(name, value);
                }
            }
        }
        if is_refusal {
            raise_millis(headers);
        }
    }

    /// Whether the single limit in this set replaces the limit in `headers`, because it is stricter.
    fn is_stricter_than(&self, limit: &[HeaderName], headers: &HeaderMap) -> bool {
        let in_set = |name: &HeaderName| self.fields.iter().find_map(|(other, value)| (name == other).then_some(value));
        let outer = SingleLimit::read(self.style, limit, in_set);
        // A field on two lines has no single value and is treated as absent.
        let single_line = |name: &HeaderName| {
            let mut lines = headers.get_all(self.names.of(name)).iter();
            lines.next().filter(|_| lines.next().is_none())
        };
        let inner = SingleLimit::read(self.style, limit, single_line);
        let (Some(outer), Some(inner)) = (outer, inner) else { return false };
        // A client that the inner limiter has denied must not get an earlier reset.
        let earlier = headers.contains_key(RETRY_AFTER) && outer.reset < inner.reset;
        (outer.remaining, Reverse(outer.reset)) < (inner.remaining, Reverse(inner.reset)) && !earlier
    }
}

/// A limit whose fields each have one value.
struct SingleLimit {
    remaining: u64,
    /// In seconds from now or since the Unix epoch, or in milliseconds, depending on the style.
    reset: Option<u64>,
}

impl SingleLimit {
    fn read<'a>(
        style: HeaderStyle,
        limit: &[HeaderName],
        get: impl Fn(&HeaderName) -> Option<&'a HeaderValue>,
    ) -> Option<Self> {
        let mut values = limit.iter().map(get);
        let first = values.next()?;
        if style == HeaderStyle::Draft07 {
            let text = first?.to_str().ok()?;
            return Some(Self { remaining: member(text, "remaining")?, reset: member(text, "reset") });
        }
        let (remaining, reset) = (read_number(first)?, values.nth(1).flatten());
        let read = if style == HeaderStyle::OpenAi { read_duration } else { read_number };
        Some(Self { remaining, reset: read(reset) })
    }
}

/// Reads the Integer at `key` in a Dictionary without Strings, the format of revision 07.
fn member(dictionary: &str, key: &str) -> Option<u64> {
    let mut members = dictionary.split(',').filter_map(|member| member.trim().split_once('='));
    let (_, value) = members.find(|(name, _)| *name == key)?;
    value.split(';').next()?.parse().ok()
}

/// Inserts the fields of a rejection into `headers`. Has the effect of [`HeaderFields::push_rejection`] and
/// [`HeaderFields::apply`], without a set of fields.
pub(super) fn insert_rejection(headers: &mut HeaderMap, wait: Option<Duration>, in_millis: bool) {
    if let Some(wait) = wait {
        insert_longest(headers, RETRY_AFTER, number(whole_seconds(wait)));
        if in_millis {
            insert_longest(headers, RETRY_AFTER_MS, number(millis_up(wait).max(1)));
        }
        raise_millis(headers);
    }
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
}

/// Raises `retry-after-ms` to a later `Retry-After`, which another layer has written without milliseconds. Clients that
/// know both fields obey the milliseconds alone, and would be early.
fn raise_millis(headers: &mut HeaderMap) {
    let Some(millis) = headers.get(RETRY_AFTER_MS) else { return };
    let (millis, seconds) = (read_number(Some(millis)), read_number(headers.get(RETRY_AFTER)));
    if let Some(seconds) = seconds.filter(|seconds| millis.is_none_or(|millis| millis.div_ceil(1_000) < *seconds)) {
        headers.insert(RETRY_AFTER_MS, number(seconds.saturating_mul(1_000)));
    }
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Inserts a wait, or keeps a longer wait that `headers` has. The result is on one line, because clients cannot parse
/// `5, 30`.
fn insert_longest(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let inner = headers.get_all(&name).iter().filter_map(|value| read_number(Some(value))).max();
    let value = inner.filter(|inner| Some(*inner) >= read_number(Some(&value))).map_or(value, number);
    headers.insert(name, value);
}

/// The fields of the response to an allowed request. The layer writes them before it calls the service, so that it need
/// not keep the decision, which is several times as large.
pub(crate) enum AllowedFields {
    /// The decision has no verdict, or the style has no fields.
    None,
    /// One policy in the style `Draft11`, the common case. It needs no set of fields, because the style only appends.
    Draft11 { policy: HeaderValue, limit: HeaderValue },
    /// Boxed, because a set is large and the other styles are rare.
    Set(Box<HeaderFields>),
}

impl AllowedFields {
    /// Merges the fields into the headers of a response, as [`HeaderFields::apply`] does.
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

impl From<HeaderFields> for AllowedFields {
    fn from(fields: HeaderFields) -> Self {
        if fields.is_empty() { Self::None } else { Self::Set(Box::new(fields)) }
    }
}
