//! The JSON Schema in the docs is the one that the crate generates.

use std::{fs, path::Path};

#[test]
fn the_schema_in_the_docs_is_generated() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.schema.json");
    let schema = tollgate::config::schema();
    if std::env::var_os("TOLLGATE_WRITE_SCHEMA").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let file = fs::read_to_string(&path).unwrap_or_default();
    assert!(file == schema, "docs/limits.schema.json is not up to date: run this test with TOLLGATE_WRITE_SCHEMA=1");
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    let route = &schema["properties"]["routes"]["additionalProperties"]["properties"];
    assert_eq!(route["cost"]["minimum"], 1);
    assert_eq!(route["on-store-failure"]["enum"], serde_json::json!(["open", "closed", "local"]));
}

/// The files that users copy.
#[test]
fn the_files_in_the_docs_are_accepted_without_a_warning() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut files = 0;
    for page in ["limits-in-a-file.md", "plans-from-a-database.md"] {
        let page = fs::read_to_string(docs.join(page)).unwrap();
        let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for file in blocks.filter(|block| block.contains("[default]")) {
            assert_eq!(super::check(file).expect(file).warnings(), [], "{file}");
            files += 1;
        }
    }
    assert_eq!(files, 3);
}
