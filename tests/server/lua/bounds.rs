//! The table of the loops of the script.

use std::{collections::BTreeMap, fs, path::Path};

/// The conditions of the loops in a file, without comments.
fn loops(text: &str) -> Vec<String> {
    let code = text.lines().map(|line| line.split("--").next().unwrap().trim());
    let words = |line: &str| line.split(' ').next().is_some_and(|word| ["for", "until", "while"].contains(&word));
    let starts = code.clone().filter(|line| words(line));
    // A loop in one line ends its condition with `do`.
    let conditions: Vec<_> = starts
        .map(|line| match line.split_once(" do ") {
            Some((condition, _)) => format!("{condition} do"),
            None => line.to_owned(),
        })
        .collect();
    let has_hidden = |line: &str| [" for ", " while ", " repeat ", " goto "].iter().any(|word| line.contains(word));
    assert_eq!(code.into_iter().find(|line| has_hidden(line)), None, "a loop has a line of its own");
    conditions
}

#[test]
fn every_loop_of_the_script_has_a_bound() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lua");
    let mut in_code: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".lua") {
            let loops = loops(&fs::read_to_string(&path).unwrap());
            if !loops.is_empty() {
                in_code.insert(name, loops);
            }
        }
    }
    let mut in_table: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in fs::read_to_string(directory.join("BOUNDS.md")).unwrap().lines() {
        if let [_, file, _, condition, _] = line.splitn(5, '`').collect::<Vec<_>>()[..]
            && line.starts_with("| `")
        {
            in_table.entry(file.to_owned()).or_default().push(condition.to_owned());
        }
    }
    assert_eq!(in_table, in_code, "lua/BOUNDS.md, and the loops of lua/*.lua");
}
