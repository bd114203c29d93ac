//! The table of routes: finds the settings that apply to a request. Its entries are a tree of path segments, which
//! finds the most specific entry first.

use std::collections::HashMap;
use std::sync::{Arc, atomic::Ordering};

use http::{Method, request::Parts};

use super::Settings;
use super::pattern::{Pattern, Segment, segments};
use crate::key::{matched_path, sent_path, without_trailing_slash};
use crate::observe::{Event, Observer, Warning};
use crate::{error::ConfigError, middleware::setup_checks::Countdown};

/// Settings by path, and by method and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteTable {
    entries: Vec<Entry>,
    /// The index of each entry by its path, with and without the slash at the end if it is written with one. Most
    /// requests need only this look-up.
    exact: HashMap<String, usize>,
    tree: Node,
    unmatched: Arc<UnmatchedCheck>,
}

/// The settings of one path: for particular methods, and for all other methods.
#[derive(Clone, Debug, Default)]
struct Entry {
    rows: Vec<Row>,
    /// Whether the path has no parameters, so that the entry covers exactly one path.
    is_text: bool,
}

#[derive(Clone, Debug)]
struct Row {
    /// The route as the user wrote it.
    route: String,
    /// The path of the route, without trailing slashes.
    path: String,
    /// `None`: all methods that no other row of the entry names.
    method: Option<Method>,
    settings: Settings,
}

/// Counts down the requests after which unmatched routes are reported. Layers with the same table share the count.
#[derive(Debug)]
struct UnmatchedCheck(Countdown);

/// Number of requests after which unmatched routes are reported. A smaller number would report rarely used routes.
const REQUESTS: u32 = 10_000;

impl Default for UnmatchedCheck {
    fn default() -> Self {
        Self(Countdown::new(REQUESTS))
    }
}

impl RouteTable {
    pub(crate) fn insert(&mut self, route: &str, settings: Settings) -> Result<(), ConfigError> {
        let Pattern { method, path, written } = Pattern::parse(route)?;
        let index = *self.tree.entry_of(path).get_or_insert(self.entries.len());
        if index == self.entries.len() {
            self.entries.push(Entry { rows: Vec::new(), is_text: !path.contains(['{', '}']) });
        }
        let rows = &mut self.entries[index].rows;
        if rows.iter().any(|row| row.method == method) {
            return Err(ConfigError::new(format!(
                "route {route:?} is in the table already (the names of parameters and trailing slashes are ignored); \
                 leave one of the two out"
            )));
        }
        rows.push(Row { route: route.to_owned(), path: path.to_owned(), method, settings });
        self.exact.extend([path, written].map(|path| (path.to_owned(), index)));
        // A changed table counts its requests from the start.
        self.unmatched = Arc::default();
        Ok(())
    }

    /// Adds the routes of `other`.
    #[cfg(feature = "serde")]
    pub(in crate::middleware) fn extend(&mut self, other: &Self) -> Result<(), ConfigError> {
        let mut rows = other.entries.iter().flat_map(|entry| &entry.rows);
        rows.try_for_each(|row| self.insert(&row.route, row.settings.clone()))
    }

    /// Counts a request. At the end of the countdown, reports each route that no request has matched.
    #[inline]
    pub(crate) fn check_unmatched(&self, matched: Option<&Settings>, observer: &dyn Observer) {
        if self.entries.is_empty() || self.unmatched.0.is_over() {
            return;
        }
        if let Some(settings) = matched {
            settings.matched.store(true, Ordering::Relaxed);
        }
        if self.unmatched.0.count() {
            self.warn(observer);
        }
    }

    #[cold]
    fn warn(&self, observer: &dyn Observer) {
        let rows = self.entries.iter().flat_map(|entry| &entry.rows);
        for Row { route, .. } in rows.filter(|row| !row.settings.matched.load(Ordering::Relaxed)) {
            observer.on_event(&Event::of_warning(Warning::unmatched_route(route, REQUESTS)));
        }
    }

    /// The settings of every route.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Settings> {
        self.entries.iter().flat_map(|entry| entry.rows.iter().map(|row| &row.settings))
    }

    /// The settings of the entry that covers the request. `is_cheaper` compares two settings; see `covering`.
    pub(crate) fn resolve(
        &self,
        parts: &Parts,
        is_cheaper: impl Fn(&Settings, Option<&Settings>) -> bool,
    ) -> Option<&Settings> {
        self.covering(parts, is_cheaper).map(|row| &row.settings)
    }

    /// The path of the entry that covers the request, without slashes at its end.
    pub(crate) fn path_of(
        &self,
        parts: &Parts,
        is_cheaper: impl Fn(&Settings, Option<&Settings>) -> bool,
    ) -> Option<&str> {
        self.covering(parts, is_cheaper).map(|row| &*row.path)
    }

    /// The row of the most specific entry that covers the request and has settings for its method.
    ///
    /// A router's template is compared with the entries. The path itself is compared where no router has matched the
    /// request, and where the template ends in a wildcard, because the service behind a wildcard routes by the path.
    ///
    /// Servers read some paths in two ways: many ignore a slash at the end and repeated slashes, and a nested router at
    /// `/files/{*rest}` answers `/files` too. The entry of the wider reading applies, so that no spelling avoids it,
    /// unless it is exempt or `is_cheaper` than the entry that covers the path as it was sent.
    fn covering(&self, parts: &Parts, is_cheaper: impl Fn(&Settings, Option<&Settings>) -> bool) -> Option<&Row> {
        if self.entries.is_empty() {
            return None;
        }
        let template = matched_path(parts);
        let of_template = || self.find(template?, Kind::Template, &parts.method, &|| true);
        if template.is_some_and(|template| !ends_in_wildcard(template)) {
            return of_template();
        }
        let sent = sent_path(parts);
        let tidied = without_trailing_slash(sent)?;
        // A server may rewrite the path to a path that is not exempt.
        let may_be_exempt = || is_normalized(tidied);
        let find = |path, kind| self.find(path, kind, &parts.method, &may_be_exempt);
        let as_sent = find(sent, Kind::Sent).or_else(of_template);
        let wider = self.find(tidied, Kind::Tidied, &parts.method, &|| true);
        let settings_as_sent = as_sent.map(|row| &row.settings);
        let wider = wider.filter(|row| !row.settings.exempt && !is_cheaper(&row.settings, settings_as_sent));
        wider.or(as_sent).or_else(|| find(sent, Kind::SentBelow))
    }

    /// The row of the most specific entry that covers `path`.
    fn find(&self, path: &str, kind: Kind, method: &Method, may_be_exempt: &impl Fn() -> bool) -> Option<&Row> {
        let accept = |index: usize| self.entries[index].row(method, may_be_exempt);
        // A client may send a path that looks like a template.
        let covers_text = |&&index: &&usize| kind == Kind::Template || self.entries[index].is_text;
        let exact = self.exact.get(path).filter(covers_text);
        exact.and_then(|&index| accept(index)).or_else(|| self.tree.find(path, kind, &accept))
    }
}

/// Whether a template ends in `{*rest}`.
fn ends_in_wildcard(template: &str) -> bool {
    template.ends_with('}') && template.contains("{*")
}

impl Entry {
    /// The row for `method`: that of the method, then that of GET if the method inherits it, then that of all methods.
    fn row(&self, method: &Method, may_be_exempt: &impl Fn() -> bool) -> Option<&Row> {
        let fits = |row: &&Row| !row.settings.exempt || may_be_exempt();
        let of = |method: Option<&Method>| self.rows.iter().find(|row| row.method.as_ref() == method).filter(fits);
        let inherited = || inherits_get(method).then(|| of(Some(&Method::GET))).flatten();
        of(Some(method)).or_else(inherited).or_else(|| of(None))
    }
}

/// Whether the settings of GET apply to `method`, so that no client avoids them with another method. Handlers of GET
/// also answer HEAD. A CONNECT with a path opens a WebSocket over HTTP/2 (RFC 8441), as a GET does over HTTP/1.1.
fn inherits_get(method: &Method) -> bool {
    matches!(*method, Method::HEAD | Method::CONNECT)
}

/// Whether a server that normalizes paths leaves `path` unchanged: no segment is empty, `.` or `..`.
///
/// Decodes `%2e`, `%2f`, `%5c` and `%3b`, reads a backslash as a slash, and ignores the text after a semicolon in a
/// segment, because some servers do the same.
fn is_normalized(path: &str) -> bool {
    let mut path = path.replace('\\', "/");
    if path.contains('%') {
        path.make_ascii_lowercase();
        for (encoded, character) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")] {
            path = path.replace(encoded, character);
        }
    }
    path == "/"
        || path.split('/').skip(1).all(|segment| {
            let name = segment.split_once(';').map_or(segment, |(name, _)| name);
            !matches!(name, "" | "." | "..")
        })
}

/// A node of the tree. The path from the root to the node is the beginning of a route's path.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The entry whose path ends at this node.
    entry: Option<usize>,
    literals: HashMap<String, Node>,
    /// Children for parameters, each with the text in front of its parameter, the longest text first.
    parameters: Vec<(String, Node)>,
    /// The entry that covers this node and everything below it.
    rest: Option<usize>,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A path as the client has sent it, compared as axum does: a parameter matches the text of one segment,
    /// which may be empty except at the end of the path, and `{*rest}` matches text.
    Sent,
    /// The same, but `{*rest}` also covers no text, because a nested router answers at its root too.
    SentBelow,
    /// The same path with repeated slashes counted as one.
    Tidied,
    /// A router's template: a parameter of the entry matches a parameter of any name.
    Template,
}

impl Node {
    /// Returns the place for the index of `path`'s entry. Paths that differ only in the names of parameters share a
    /// place.
    fn entry_of(&mut self, path: &str) -> &mut Option<usize> {
        let mut node = self;
        for segment in segments(path) {
            node = match read(segment, Kind::Template) {
                Segment::Literal(text) => node.literals.entry(text.into_owned()).or_default(),
                Segment::Parameter { prefix } => node.parameter(&prefix),
                Segment::Rest => return &mut node.rest,
            };
        }
        &mut node.entry
    }

    fn parameter(&mut self, prefix: &str) -> &mut Node {
        let found = self.parameters.iter().position(|(other, _)| other == prefix);
        let place = found.unwrap_or_else(|| {
            let place = self.parameters.partition_point(|(other, _)| other.len() > prefix.len());
            self.parameters.insert(place, (prefix.to_owned(), Node::default()));
            place
        });
        &mut self.parameters[place].1
    }

    /// Calls `accept` with the entries that cover `path`, the most specific first, until it returns a value. In each
    /// segment a literal comes before a parameter, and a parameter before `{*rest}`.
    ///
    /// Visits no node twice, so the time is bounded by the size of the table.
    pub(super) fn find<T>(&self, path: &str, kind: Kind, accept: &impl Fn(usize) -> Option<T>) -> Option<T> {
        self.descend(path.strip_prefix('/').filter(|path| !path.is_empty()), kind, accept)
    }

    fn descend<T>(&self, path: Option<&str>, kind: Kind, accept: &impl Fn(usize) -> Option<T>) -> Option<T> {
        let deeper = match path {
            None => self.entry.and_then(accept),
            Some(path) => {
                let path = if kind == Kind::Tidied { path.trim_start_matches('/') } else { path };
                let (segment, tail) =
                    path.split_once('/').map_or((path, None), |(segment, tail)| (segment, Some(tail)));
                let mut children = self.children(read(segment, kind), kind, tail.is_none());
                children.find_map(|child| child.descend(tail, kind, accept))
            }
        };
        let covers_rest = kind != Kind::Sent || path.is_some_and(|path| !path.is_empty());
        deeper.or_else(|| self.rest.filter(|_| covers_rest).and_then(accept))
    }

    fn children<'a>(&'a self, segment: Segment<'a>, kind: Kind, is_last: bool) -> impl Iterator<Item = &'a Node> {
        let literal = match &segment {
            Segment::Literal(text) => self.literals.get(text.as_ref()),
            Segment::Parameter { .. } | Segment::Rest => None,
        };
        let parameters = self.parameters.iter().filter(move |(prefix, _)| match &segment {
            Segment::Literal(text) if kind != Kind::Template => {
                text.strip_prefix(prefix.as_str()).is_some_and(|value| !is_last || !value.is_empty())
            }
            Segment::Literal(_) => false,
            Segment::Parameter { prefix: other } => prefix == other,
            Segment::Rest => false,
        });
        literal.into_iter().chain(parameters.map(|(_, node)| node))
    }
}

/// Parses a segment. A segment of a template that is not valid in axum 0.8 becomes a literal, because another router
/// may have another syntax.
fn read(segment: &str, kind: Kind) -> Segment<'_> {
    match kind {
        Kind::Sent | Kind::SentBelow | Kind::Tidied => Segment::Literal(segment.into()),
        Kind::Template => Segment::parse(segment).unwrap_or_else(|_| Segment::Literal(segment.into())),
    }
}
