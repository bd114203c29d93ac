//! The configurations of proxies in `docs/behind-a-proxy.md`.

const PAGE: &str = include_str!("../../../docs/behind-a-proxy.md");

/// A block of code of the page: the first one of its language has the number 0.
pub(crate) fn block(language: &str, number: usize) -> &'static str {
    let fence = format!("```{language}\n");
    let code = PAGE.split(&fence).nth(number + 1).unwrap_or_else(|| panic!("the page has no block {number} {fence}"));
    code.split("```").next().unwrap()
}

/// Replaces a part that the lines must have.
pub(crate) fn replace(lines: &str, part: &str, by: &str) -> String {
    assert!(lines.contains(part), "the page has no {part:?} here:\n{lines}");
    lines.replace(part, by)
}
