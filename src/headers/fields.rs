//! Merging our fields into a response that may already have some.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CACHE_CONTROL, RETRY_AFTER},
};
use smallvec::SmallVec;

use super::{HeaderStyle, ietf, x_rate_limit};

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
    /// Lists are appended to; of two single-valued limits the more restrictive one is kept as a whole; of two
    /// `Retry-After` the longer one, on one line; a `Cache-Control` that is there stays.
    pub fn apply(self, headers: &mut HeaderMap) {
        let remaining = |value: &HeaderValue| remaining(self.style, value);
        let (single, inner) = match self.style {
            HeaderStyle::Draft06 => (&ietf::SINGLE_06[..], headers.get(&ietf::RATELIMIT_REMAINING)),
            HeaderStyle::Draft07 => (&ietf::SINGLE_07[..], headers.get(&ietf::RATELIMIT)),
            HeaderStyle::XRateLimitDelta | HeaderStyle::XRateLimitEpoch => {
                (&x_rate_limit::SINGLE[..], headers.get(&x_rate_limit::REMAINING))
            }
            HeaderStyle::Draft11 | HeaderStyle::None => (&[][..], None),
        };
        let ours = self.fields.iter().find_map(|(name, value)| single.contains(name).then(|| remaining(value))?);
        let keep_inner = inner.and_then(remaining).is_some_and(|inner| ours.is_none_or(|ours| inner <= ours));
        if !keep_inner && ours.is_some() {
            for name in single {
                headers.remove(name);
            }
        }
        for (name, value) in self.fields {
            if name == RETRY_AFTER {
                retry_after(headers, value);
            } else if name == CACHE_CONTROL {
                headers.entry(name).or_insert(value);
            } else if !(keep_inner && single.contains(&name)) {
                headers.append(name, value);
            }
        }
    }
}

/// Marks the response as a refusal, as [`Fields::refuse`] does, without a set in between.
pub(super) fn refuse(headers: &mut HeaderMap, seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        retry_after(headers, number(seconds));
    }
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Of two, the longer one stays.
fn retry_after(headers: &mut HeaderMap, value: HeaderValue) {
    if integer(headers.get(RETRY_AFTER)) < integer(Some(&value)) {
        headers.insert(RETRY_AFTER, value);
    }
}

/// A number in one allocation of its size; the conversion in `http` makes two.
pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are a header value")
}

/// The units left, if this is the field that tells them.
fn remaining(style: HeaderStyle, value: &HeaderValue) -> Option<u64> {
    if style == HeaderStyle::Draft07 {
        let (_, rest) = value.to_str().ok()?.split_once("remaining=")?;
        return rest.split(',').next()?.trim().parse().ok();
    }
    integer(Some(value))
}

fn integer(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}
