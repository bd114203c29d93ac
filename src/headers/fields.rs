//! Merging our fields into a response that may already have some.

use std::cmp::Reverse;

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, RETRY_AFTER},
};
use smallvec::SmallVec;

use super::{HeaderStyle, x_rate_limit};

/// Fields to be merged into a response, in one [`HeaderStyle`].
#[derive(Clone, Debug)]
pub struct Fields {
    style: HeaderStyle,
    fields: SmallVec<[(HeaderName, HeaderValue); 2]>,
}

impl Fields {
    /// Creates an empty set.
    pub fn new(style: HeaderStyle) -> Self {
        Self { style, fields: SmallVec::new() }
    }

    /// Adds a field.
    pub fn push(&mut self, name: HeaderName, value: HeaderValue) {
        self.fields.push((name, value));
    }

    /// Marks the response as a refusal: no cache may keep it, and the client may come back after `retry_after` seconds.
    pub(crate) fn refuse(&mut self, retry_after: Option<u64>) {
        if let Some(seconds) = retry_after {
            self.push(RETRY_AFTER, number(seconds));
        }
        self.push(CACHE_CONTROL, NO_STORE);
    }

    /// Merges the fields into a response's, never loosening what an inner limiter said.
    ///
    /// Lists are appended to. Of two single-valued limits the more restrictive one is kept as a whole: the one with less
    /// left, then the one with the later reset; one that cannot be read stays, for it might be it. Of two `Retry-After`
    /// the longer one is kept, on one line, and a date gives way to ours; a `Cache-Control` that is there stays.
    pub fn apply(self, headers: &mut HeaderMap) {
        let single = self.style.single();
        let mut keep_inner = single.iter().any(|name| headers.contains_key(name));
        if keep_inner && self.is_stricter_than(headers) {
            keep_inner = false;
            for name in single {
                headers.remove(name);
            }
        }
        for (name, value) in self.fields {
            if name == RETRY_AFTER || name == x_rate_limit::AFTER {
                longer(headers, name, value);
            } else if name == CACHE_CONTROL || name == x_rate_limit::ENVOY_RATELIMITED {
                headers.entry(name).or_insert(value);
            } else if !(keep_inner && single.contains(&name)) {
                headers.append(name, value);
            }
        }
    }

    /// Whether our single-valued limit is to take the place of the one that is there.
    fn is_stricter_than(&self, headers: &HeaderMap) -> bool {
        let ours = |name: &HeaderName| self.fields.iter().find_map(|(other, value)| (name == other).then_some(value));
        let ours = Standing::read(self.style, ours);
        // A value on two lines cannot be read.
        let single = |name: &HeaderName| {
            let mut lines = headers.get_all(name).iter();
            lines.next().filter(|_| lines.next().is_none())
        };
        let inner = Standing::read(self.style, single);
        let (Some(ours), Some(inner)) = (ours, inner) else { return false };
        // Who was refused inside must not be told to come back earlier.
        let earlier = headers.contains_key(RETRY_AFTER) && ours.reset < inner.reset;
        (ours.remaining, Reverse(ours.reset)) < (inner.remaining, Reverse(inner.reset)) && !earlier
    }
}

/// What a single-valued style says of a limit.
struct Standing {
    remaining: u64,
    /// From now on or since the epoch, as the style has it.
    reset: Option<u64>,
}

impl Standing {
    fn read<'a>(style: HeaderStyle, get: impl Fn(&HeaderName) -> Option<&'a HeaderValue>) -> Option<Self> {
        let mut values = style.single().iter().map(get);
        let first = values.next()?;
        if style == HeaderStyle::Draft07 {
            let text = first?.to_str().ok()?;
            return Some(Self { remaining: member(text, "remaining")?, reset: member(text, "reset") });
        }
        Some(Self { remaining: integer(first)?, reset: integer(values.nth(1).flatten()) })
    }
}

/// An Integer of a Dictionary without Strings, which is what revision 07 has.
fn member(dictionary: &str, key: &str) -> Option<u64> {
    let mut members = dictionary.split(',').filter_map(|member| member.trim().split_once('='));
    let (_, value) = members.find(|(name, _)| *name == key)?;
    value.split(';').next()?.parse().ok()
}

/// Marks the response as a refusal, as [`Fields::refuse`] does, without a set in between.
pub(super) fn refuse(headers: &mut HeaderMap, seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        longer(headers, RETRY_AFTER, number(seconds));
    }
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Of several waits, the longest one stays, on one line: clients cannot read `5, 30`.
fn longer(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let there = headers.get_all(&name).iter().filter_map(|value| integer(Some(value))).max();
    let value = there.filter(|there| Some(*there) >= integer(Some(&value))).map_or(value, number);
    headers.insert(name, value);
}

/// A number in one allocation of its size; the conversion in `http` makes two.
pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are a header value")
}

fn integer(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
