//! Values with wildcards: `foo*`, `/api/*/v1`.

/// A value in which each `*` stands for any text.
#[derive(Debug)]
pub(super) struct Pattern(String);

impl Pattern {
    /// `None` for a value without a wildcard.
    pub(super) fn new(value: &str) -> Option<Self> {
        value.contains('*').then(|| Self(value.to_owned()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Takes the earliest place for each part, which leaves the most for the parts behind it.
    pub(super) fn matches(&self, value: &str) -> bool {
        let Some((start, rest)) = self.0.split_once('*') else { return self.0 == value };
        let Some(mut left) = value.strip_prefix(start) else { return false };
        let mut parts: Vec<&str> = rest.split('*').collect();
        let end = parts.pop().unwrap_or_default();
        for part in parts {
            let Some(at) = left.find(part) else { return false };
            left = &left[at + part.len()..];
        }
        left.len() >= end.len() && left.ends_with(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_any_text() {
        let matches = |pattern, value| Pattern::new(pattern).unwrap().matches(value);
        for (pattern, value) in
            [("foo*", "foo"), ("foo*", "foobar"), ("*", ""), ("/a*v1", "/a/b/v1"), ("a*b*c", "a1b2c")]
        {
            assert!(matches(pattern, value), "{pattern} {value}");
        }
        for (pattern, value) in [("foo*", "fo"), ("/a*v1", "/a/v1/x"), ("a*a", "a"), ("a*b*c", "acb"), ("*b*b", "ab")] {
            assert!(!matches(pattern, value), "{pattern} {value}");
        }
        assert!(Pattern::new("plain").is_none());
    }
}
