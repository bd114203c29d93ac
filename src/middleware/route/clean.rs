//! Paths that a server may serve as another path.

/// Whether a server that cleans paths leaves this one as it is: it has no empty segment, no `.` and no `..`.
///
/// Reads `%2e` and the like as the characters that they stand for, a backslash as a slash, and a segment up to its
/// semicolon, because some servers do.
pub(super) fn is_clean(path: &str) -> bool {
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
