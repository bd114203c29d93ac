//! Reads the files of a configuration.

use std::fs;
use std::path::{Path, PathBuf};

use super::mistake::{ConfigMistakes, Mistake};

/// The text of each file, in the order of their names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Content(pub(crate) Vec<(PathBuf, String)>);

/// The longest file.
const LONGEST: u64 = 16 << 20;

/// Reads a file, or the files of a folder. Names that begin with a dot are left out: Kubernetes mounts a ConfigMap
/// through them.
pub(crate) fn read(path: &Path) -> Result<Content, ConfigMistakes> {
    let of_path = |error: std::io::Error| ConfigMistakes::of_file(path.to_owned(), error.to_string());
    if !fs::metadata(path).map_err(of_path)?.is_dir() {
        return text(path)
            .map(|text| Content(vec![(path.to_owned(), text)]))
            .map_err(|mistake| ConfigMistakes(vec![mistake]));
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(path).map_err(of_path)? {
        let path = entry.map_err(of_path)?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        if is_yaml && !is_hidden {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        let message = "no file of this folder ends with .yaml or .yml";
        return Err(ConfigMistakes::of_file(path.to_owned(), message));
    }
    paths.sort();
    let (mut content, mut mistakes) = (Vec::new(), Vec::new());
    for path in paths {
        match text(&path) {
            Ok(text) => content.push((path, text)),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() { Ok(Content(content)) } else { Err(ConfigMistakes(mistakes)) }
}

/// A pipe or a device is never waited for.
fn text(path: &Path) -> Result<String, Mistake> {
    let mistake = |message: String| Mistake { file: path.to_owned(), place: None, message };
    let metadata = fs::metadata(path).map_err(|error| mistake(error.to_string()))?;
    match metadata.len() {
        _ if !metadata.is_file() => Err(mistake("no file".to_owned())),
        length if length > LONGEST => Err(mistake(format!("longer than {LONGEST} bytes"))),
        _ => fs::read_to_string(path).map_err(|error| mistake(error.to_string())),
    }
}
