//! The table of the names of events is that of the code, and so is what the pages say of events.

use std::collections::{BTreeMap, BTreeSet};

/// The docs of `Event`.
const DOCS: &str = include_str!("../../src/observe/observer.rs");
/// Where the code names the events, their outcomes and their numbers.
const CODE: [&str; 2] = [include_str!("../../src/observe/event_kind.rs"), include_str!("../../src/observe/other.rs")];
const PAGES: [&str; 7] = [
    include_str!("../../CHANGELOG.md"),
    include_str!("../../docs/config-file.md"),
    include_str!("../../docs/holds.md"),
    include_str!("../../docs/operations.md"),
    include_str!("../../docs/plans.md"),
    include_str!("../../docs/rollout.md"),
    include_str!("../../docs/when-redis-fails.md"),
];

/// The rows of the table below this line of the docs, without its head: the name, and the text of the row.
fn rows(head: &str) -> Vec<(&'static str, &'static str)> {
    let (_, table) = DOCS.split_once(head).unwrap_or_else(|| panic!("the docs have no table {head:?}"));
    let lines = table.lines().skip(2).map_while(|line| line.trim_start().strip_prefix("/// | "));
    lines.map(|line| line.split_once(" | ").unwrap()).map(|(name, text)| (name.trim_matches('`'), text)).collect()
}

/// The names of the code: the first text behind the arrow of each kind of event.
fn in_code() -> BTreeSet<&'static str> {
    let arms = CODE.iter().flat_map(|code| code.lines()).filter_map(|line| line.split_once(" => (\""));
    arms.map(|(_, name)| name.split_once('"').unwrap().0).collect()
}

#[test]
fn the_table_of_events_has_the_names_of_the_code_in_order() {
    let table: Vec<&str> = rows("/// | name | what happened | outcome |").into_iter().map(|(name, _)| name).collect();
    let code: Vec<&str> = in_code().into_iter().collect();
    assert!(code.len() > 10, "the code names its events in another way: {code:?}");
    assert_eq!(table, code);
}

#[test]
fn the_table_of_numbers_has_the_numbers_of_the_code() {
    let table: BTreeMap<&str, &str> = rows("/// | name | event | the number |")
        .into_iter()
        .map(|(number, text)| (number, text.split_once(" | ").unwrap().0.trim_matches('`')))
        .collect();
    let code = CODE[0].lines().filter_map(|line| line.trim_start().strip_prefix("(Self::")?.split_once(", \""));
    let code: BTreeSet<&str> = code.map(|(_, number)| number.split_once('"').unwrap().0).collect();
    assert_eq!(table.keys().copied().collect::<BTreeSet<_>>(), code);
    assert!(table.values().all(|event| in_code().contains(event)), "{table:?}");
}

#[test]
fn pages_name_events_that_there_are() {
    let known = in_code();
    let mut named = BTreeSet::new();
    for page in PAGES {
        let words: Vec<&str> = page.split_whitespace().collect();
        let after_event = words.windows(2).filter(|pair| matches!(pair[0], "event" | "events"));
        named.extend(after_event.filter_map(|pair| pair[1].strip_prefix('`')?.split_once('`').map(|(name, _)| name)));
    }
    assert!(!named.is_empty());
    assert_eq!(named.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
}
