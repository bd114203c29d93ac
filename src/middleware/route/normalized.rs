//! Paths that a server may rewrite to another path.

/// Whether the path is in normal form: no empty segment, no `.` and no `..`, so that a server that normalizes paths
/// does not change it.
///
/// Decodes `%2e`, `%2f`, `%5c` and `%3b`, reads a backslash as a slash, and ignores what follows a semicolon in a
/// segment, because some servers do.
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
