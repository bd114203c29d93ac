//! YAML as a tree whose nodes know their place in the file.

use std::{collections::HashMap, rc::Rc};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::mistake::Place;

/// A value, and where it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Text, and whether it is plain: without quotes, so that it may be a number, a truth value or nothing.
    Scalar {
        text: String,
        is_plain: bool,
    },
    List(Vec<Rc<Node>>),
    /// The fields in their order. A key may be there twice.
    Map(Vec<(Rc<Node>, Rc<Node>)>),
}

impl Node {
    /// What the value is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { text, is_plain: true } if text.parse::<f64>().is_ok() => "a number",
            Value::Scalar { text, is_plain: true } if truth(text).is_some() => "a truth value",
            Value::Scalar { .. } => "text",
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, is_plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar, also if it looks like a number: the reference reads `value: 1` as text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match &self.value {
            Value::Scalar { text, is_plain: true } => truth(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        match &self.value {
            Value::Scalar { text, is_plain: true } => text.parse().ok(),
            _ => None,
        }
    }
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Reads the one document of a file; `None` if it is empty.
pub(super) fn read(text: &str) -> Result<Option<Rc<Node>>, (Place, String)> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new() };
    let mut document = None;
    while let Some((event, place)) = reader.next()? {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if document.is_some() => {
                return Err((place, "a second document; write each domain into a file of its own".to_owned()));
            }
            event => document = Some(reader.node(event, place, 0)?),
        }
    }
    Ok(document)
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: HashMap<usize, Rc<Node>>,
}

/// The deepest nesting of lists and maps: far above what a request's entries can match, and safe for the stack.
const DEEPEST: usize = 256;

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Place)>, (Place, String)> {
        let of_error = |error: ScanError| (place(*error.marker()), format!("no YAML: {}", error.info()));
        let next = self.parser.next_event().transpose().map_err(of_error)?;
        Ok(next.map(|(event, Span { start, .. })| (event, place(start))))
    }

    fn node(&mut self, event: Event<'a>, place: Place, depth: usize) -> Result<Rc<Node>, (Place, String)> {
        if depth > DEEPEST {
            return Err((place, format!("nested more than {DEEPEST} deep")));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                return known.ok_or_else(|| (place, "an alias of a value that is not complete".to_owned()));
            }
            Event::Scalar(text, style, anchor, _) => {
                (anchor, Value::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain })
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                while let Some((event, place)) = self.inner(&Event::SequenceEnd)? {
                    items.push(self.node(event, place, depth + 1)?);
                }
                (anchor, Value::List(items))
            }
            Event::MappingStart(anchor, _) => {
                let mut fields = Vec::new();
                while let Some((event, place)) = self.inner(&Event::MappingEnd)? {
                    let key = self.node(event, place, depth + 1)?;
                    let Some((event, place)) = self.next()? else { break };
                    fields.push((key, self.node(event, place, depth + 1)?));
                }
                (anchor, Value::Map(fields))
            }
            _ => return Err((place, "no YAML: the document ends too early".to_owned())),
        };
        let node = Rc::new(Node { place, value });
        // Anchors are counted from 1.
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        Ok(node)
    }

    /// The next event of a collection; `None` at its end.
    fn inner(&mut self, end: &Event<'_>) -> Result<Option<(Event<'a>, Place)>, (Place, String)> {
        Ok(self.next()?.filter(|(event, _)| event != end))
    }
}

fn place(mark: saphyr_parser::Marker) -> Place {
    Place { line: mark.line(), column: mark.col() + 1 }
}
