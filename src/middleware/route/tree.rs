//! The entries of a route table as a tree of path segments, which finds the most specific entry first.

use std::collections::HashMap;

use super::pattern::{Segment, segments};

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
    pub(super) fn entry_of(&mut self, path: &str) -> &mut Option<usize> {
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
