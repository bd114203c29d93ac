//! The syntax of a route: `/path` or `METHOD /path`, with the parameters of axum 0.8.

use std::borrow::Cow;

use http::Method;

use crate::error::ConfigError;
use crate::key::without_trailing_slash;

/// A parsed route.
pub(super) struct Pattern<'a> {
    /// `None`: all methods.
    pub(super) method: Option<Method>,
    /// The path without trailing slashes.
    pub(super) path: &'a str,
    /// The path as it was written.
    pub(super) written: &'a str,
}

/// The part of a path between two slashes.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Segment<'a> {
    /// Text, after doubled braces are replaced with single braces.
    Literal(Cow<'a, str>),
    /// `{name}` after the text `prefix`, which may be empty.
    Parameter { prefix: Cow<'a, str> },
    /// `{*name}`: the rest of the path.
    Rest,
}

const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::CONNECT,
    Method::OPTIONS,
    Method::TRACE,
    Method::PATCH,
];

/// The most segments of a route. The table is a tree of segments, which a deep route would make too deep for a stack.
const MOST_SEGMENTS: usize = 256;

impl<'a> Pattern<'a> {
    pub(super) fn parse(route: &'a str) -> Result<Self, ConfigError> {
        let segments = route.matches('/').count();
        if segments > MOST_SEGMENTS {
            return Err(ConfigError::new(format!(
                "a route with {segments} segments is too long; write {{*rest}} in place of the last ones, at most \
                 {MOST_SEGMENTS} in all"
            )));
        }
        read(route).map_err(|advice| ConfigError::new(format!("route {route:?} is not understood: {advice}")))
    }
}

/// The segments of a path or template that has no trailing slash.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').skip(1).filter(move |_| path != "/")
}

fn read(route: &str) -> Result<Pattern<'_>, String> {
    let (method, written) = match route.split_once(' ') {
        Some((method, path)) if !method.starts_with('/') => (Some(read_method(method, path)?), path),
        _ => (None, route),
    };
    let path = without_trailing_slash(written).ok_or(r#"write "/path" or "METHOD /path""#)?;
    if path.contains(char::is_whitespace) {
        return Err("remove the white space from the path; clients send a space as %20".to_owned());
    }
    if let Some((path, _)) = path.split_once(['?', '#']) {
        return Err(format!("routes are compared without query and fragment; write {path:?}"));
    }
    if let Some(old) = segments(path).find(|segment| segment.starts_with([':', '*'])) {
        return Err(format!("this is the syntax of axum 0.7; write {:?}", in_braces(path, old)));
    }
    let count = segments(path).count();
    for (place, segment) in segments(path).enumerate() {
        let last = place + 1 == count && path.len() == written.len();
        match Segment::parse(segment)? {
            Segment::Rest if !last => {
                return Err(format!("{segment} covers the rest of the path; write it as the last segment"));
            }
            Segment::Literal(_) | Segment::Parameter { .. } | Segment::Rest => {}
        }
    }
    Ok(Pattern { method, path, written })
}

/// Parses a method. Methods are case-sensitive, so `get` is an error.
fn read_method(method: &str, path: &str) -> Result<Method, String> {
    let known = |method: &str| METHODS.into_iter().find(|known| known.as_str() == method);
    known(method).ok_or_else(|| match known(&method.to_ascii_uppercase()) {
        Some(method) => format!("methods are case-sensitive; write \"{method} {path}\""),
        None => {
            let names = METHODS.map(|method| method.to_string()).join(", ");
            format!("write one of the methods {names}, or the path alone for all methods")
        }
    })
}

/// Rewrites the segment `old` to the syntax of axum 0.8: `/users/:id` to `/users/{id}`, `/files/*rest` to
/// `/files/{*rest}`.
fn in_braces(path: &str, old: &str) -> String {
    let name = old.strip_prefix(':').unwrap_or(old);
    let new = if matches!(name, "" | "*") { "{*rest}".to_owned() } else { format!("{{{name}}}") };
    let new = segments(path).map(|segment| if segment == old { &new } else { segment });
    format!("/{}", new.collect::<Vec<_>>().join("/"))
}

impl<'a> Segment<'a> {
    /// Parses a segment of a route or a template.
    pub(super) fn parse(segment: &'a str) -> Result<Self, String> {
        let Some(open) = find_brace(segment) else { return Ok(Self::Literal(unescaped(segment))) };
        let (literal, parameter) = segment.split_at(open);
        let Some((name, after)) = parameter.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            return Err(format!("{segment:?} has an unmatched brace; write {{name}}, or {{{{ for a literal brace"));
        };
        match name.strip_prefix('*') {
            _ if !after.is_empty() => {
                Err(format!("{segment:?}: a parameter ends its segment and is the only one in it; write {{{name}}}"))
            }
            Some("") => Err(format!("{segment:?}: the parameter has no name; write {{*rest}}")),
            None if name.is_empty() => Err(format!("{segment:?}: the parameter has no name; write {{id}}")),
            Some(_) if !literal.is_empty() => {
                Err(format!("{segment:?}: a parameter that covers the rest must be a whole segment; write /{{{name}}}"))
            }
            _ if name.strip_prefix('*').unwrap_or(name).contains(['*', '{']) => Err(format!(
                "{segment:?}: the name of a parameter cannot contain `*` or a brace; write {{id}} or {{*rest}}"
            )),
            Some(_) => Ok(Self::Rest),
            None => Ok(Self::Parameter { prefix: unescaped(literal) }),
        }
    }
}

/// The position of the first brace that is not doubled.
fn find_brace(segment: &str) -> Option<usize> {
    let bytes = segment.as_bytes();
    let mut place = 0;
    while place < bytes.len() {
        if matches!(bytes[place], b'{' | b'}') {
            if bytes.get(place + 1) != Some(&bytes[place]) {
                return Some(place);
            }
            place += 1;
        }
        place += 1;
    }
    None
}

/// Replaces doubled braces with single braces.
fn unescaped(literal: &str) -> Cow<'_, str> {
    if literal.contains(['{', '}']) { literal.replace("{{", "{").replace("}}", "}").into() } else { literal.into() }
}
