//! Reads the files that the arguments name.

use std::fs;

/// The URL, or the content of the file in `@FILE`.
pub(crate) fn read_url(url: String) -> Result<String, String> {
    match url.strip_prefix('@') {
        Some(path) => read_text(path).map(|text| text.trim().to_owned()),
        None => Ok(url),
    }
}

/// The content of a file, without the line break at its end, which editors and `echo` add.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let mut content = fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    if content.ends_with(b"\n") {
        content.pop();
        if content.ends_with(b"\r") {
            content.pop();
        }
    }
    Ok(content)
}

pub(crate) fn read_text(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}
