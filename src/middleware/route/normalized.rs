//! Detects paths that a server may rewrite to another path.

/// Whether a server that normalizes paths leaves `path` unchanged: no segment is empty, `.` or `..`.
///
/// Decodes `%2e`, `%2f`, `%5c` and `%3b`, reads a backslash as a slash, and ignores the text after a semicolon in a
/// segment, because some servers do the same.
pub(super) fn is_normalized(path: &str) -> bool {
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
