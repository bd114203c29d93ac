//! The page and the snippets are the same rows.

use std::{collections::BTreeMap, fs, path::Path};

const PAGE: &str = include_str!("../../docs/other-limiters.md");

/// The first two cells of each row.
fn rows() -> Vec<(&'static str, &'static str)> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let rows = rows.filter(|(theirs, _)| *theirs != "theirs" && !theirs.starts_with("---"));
    rows.map(|(theirs, rest)| (theirs, rest.split_once(" | ").unwrap().0)).collect()
}

/// The code of each snippet, by the comment before it.
fn snippets() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/words");
    let mut snippets = BTreeMap::new();
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap()) {
        if ["mod.rs", "table.rs", "ports"].iter().any(|name| file.file_name() == *name) {
            continue;
        }
        for snippet in fs::read_to_string(file.path()).unwrap().split("\n// ").skip(1) {
            let (theirs, code) = snippet.split_once('\n').unwrap();
            assert!(snippets.insert(theirs.to_owned(), code.to_owned()).is_none(), "{theirs} has two snippets");
        }
    }
    snippets
}

/// The names and numbers between backticks.
fn words(cell: &str) -> impl Iterator<Item = &str> {
    let code = cell.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()))
}

#[test]
fn each_row_for_users_of_another_limiter_is_compiled_in_the_words_of_the_row() {
    let mut snippets = snippets();
    for (theirs, ours) in rows() {
        if words(ours).next().is_none() {
            continue;
        }
        let code = snippets.remove(theirs).unwrap_or_else(|| panic!("the row of {theirs} has no snippet"));
        for word in words(ours) {
            assert!(code.contains(word), "the snippet of {theirs} lacks {word}");
        }
    }
    assert!(snippets.is_empty(), "without a row: {:?}", snippets.keys());
}
