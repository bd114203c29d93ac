//! The elements of `X-Forwarded-For`, read lazily from the right.

use http::{HeaderMap, HeaderName, HeaderValue, header::ValueIter};

use super::node::NodeError;

/// Longest element, in bytes; no valid node is longer. The bound limits the search for a comma in text that a client
/// has written.
const MAX_ELEMENT: usize = 256;

/// Iterates over all lines of the header as one list, from the end of the list. Skips empty elements (RFC 9110, section
/// 5.6.1.2).
pub(super) struct Elements<'a> {
    /// The unread lines; `None` after a malformed element.
    lines: Option<ValueIter<'a, HeaderValue>>,
    /// The unread rest of the current line.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(super) fn new(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        Self { lines: Some(headers.get_all(name).iter()), rest: &[] }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], NodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.rest = without_blanks(self.rest);
            if !self.rest.is_empty() {
                break;
            }
            self.rest = self.lines.as_mut()?.next_back()?.as_bytes();
        }
        let window = self.rest.len().saturating_sub(MAX_ELEMENT);
        let start = match self.rest[window..].iter().rposition(|&byte| byte == b',') {
            Some(comma) => window + comma + 1,
            None if window == 0 => 0,
            None => {
                // The start of this element is not known, so no element on its left can be separated.
                *self = Self { lines: None, rest: &[] };
                return Some(Err(NodeError::Malformed));
            }
        };
        let (rest, element) = self.rest.split_at(start);
        self.rest = rest;
        Some(Ok(element.trim_ascii()))
    }
}

/// Removes commas and white space from the end.
fn without_blanks(mut text: &[u8]) -> &[u8] {
    // Removes 64 bytes at once, which the compiler vectorises, because a header may be a megabyte of commas.
    while let Some((rest, stride)) = text.split_last_chunk::<64>() {
        if !stride.iter().fold(true, |blank, &byte| blank & is_blank(byte)) {
            break;
        }
        text = rest;
    }
    let end = text.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

fn is_blank(byte: u8) -> bool {
    byte == b',' || byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(lines: &[&str]) -> Vec<Result<String, NodeError>> {
        let name = HeaderName::from_static("x-forwarded-for");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, line.parse().unwrap());
        }
        Elements::new(&headers, &name).map(|item| item.map(|item| String::from_utf8(item.to_vec()).unwrap())).collect()
    }

    #[test]
    fn all_lines_are_one_list_from_its_end() {
        let of = |items: &[&str]| items.iter().map(|item| Ok(item.to_string())).collect::<Vec<_>>();
        assert_eq!(elements(&[]), of(&[]));
        assert_eq!(elements(&["", " , ,", &",".repeat(1_000)]), of(&[]));
        assert_eq!(elements(&["a"]), of(&["a"]));
        assert_eq!(elements(&["a,b , c", "", " d\t,, "]), of(&["d", "c", "b", "a"]));
        assert_eq!(elements(&["a b", &format!("c{}", " ,".repeat(500))]), of(&["c", "a b"]));
    }

    #[test]
    fn an_element_without_an_end_is_malformed_and_the_last_one() {
        let long = "x".repeat(MAX_ELEMENT + 1);
        assert_eq!(elements(&["a", &format!("{long}, b")]), [Ok("b".to_owned()), Err(NodeError::Malformed)]);
        let longest = "x".repeat(MAX_ELEMENT);
        assert_eq!(elements(&[&longest]), [Ok(longest)]);
    }
}
