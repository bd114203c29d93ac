//! The entries of a table as a tree of segments, so that the most specific one is found first.

use std::collections::HashMap;

use super::pattern::{Segment, segments};

/// What has been matched so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// The entry that ends here.
    entry: Option<usize>,
    literals: HashMap<String, Node>,
    /// By the text in front of the parameter, the longest first.
    parameters: Vec<(String, Node)>,
    /// The entry that covers this place and all that follows.
    rest: Option<usize>,
}

/// What a path is compared as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// A path as the client has sent it: repeated slashes are one, and a parameter stands for one segment.
    Plain,
    /// A template of a router's: a parameter stands for a parameter of any name.
    Template,
}

impl Node {
    /// The place of the entry that is the same as `path`, whatever its parameters are called.
    pub(super) fn place_of(&mut self, path: &str) -> &mut Option<usize> {
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

    /// Offers the entries that cover `path` to `accept`, the most specific first, until it takes one: segment by
    /// segment a text comes before a parameter, and that before what covers the rest.
    ///
    /// Visits no node twice, so that no path takes longer than the table is long.
    pub(super) fn find<T>(&self, path: &str, kind: Kind, accept: &impl Fn(usize) -> Option<T>) -> Option<T> {
        self.descend(path.strip_prefix('/').filter(|path| !path.is_empty()), kind, accept)
    }

    fn descend<T>(&self, path: Option<&str>, kind: Kind, accept: &impl Fn(usize) -> Option<T>) -> Option<T> {
        let deeper = match path {
            None => self.entry.and_then(accept),
            Some(path) => {
                let path = if kind == Kind::Plain { path.trim_start_matches('/') } else { path };
                let (segment, tail) =
                    path.split_once('/').map_or((path, None), |(segment, tail)| (segment, Some(tail)));
                let mut children = self.children(read(segment, kind), kind);
                children.find_map(|child| child.descend(tail, kind, accept))
            }
        };
        deeper.or_else(|| self.rest.and_then(accept))
    }

    fn children<'a>(&'a self, segment: Segment<'a>, kind: Kind) -> impl Iterator<Item = &'a Node> {
        let literal = match &segment {
            Segment::Literal(text) => self.literals.get(text.as_ref()),
            Segment::Parameter { .. } | Segment::Rest => None,
        };
        let parameters = self.parameters.iter().filter(move |(prefix, _)| match &segment {
            Segment::Literal(text) => kind == Kind::Plain && text.len() > prefix.len() && text.starts_with(prefix),
            Segment::Parameter { prefix: other } => prefix == other,
            Segment::Rest => false,
        });
        literal.into_iter().chain(parameters.map(|(_, node)| node))
    }
}

/// What another router has for a template may follow other rules: then it is a text.
fn read(segment: &str, kind: Kind) -> Segment<'_> {
    match kind {
        Kind::Plain => Segment::Literal(segment.into()),
        Kind::Template => Segment::parse(segment).unwrap_or_else(|_| Segment::Literal(segment.into())),
    }
}
