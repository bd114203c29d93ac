//! Pictures of the page, and what must hold of it at each width and in each color scheme.

use std::{env, fs, path::PathBuf};

use serde_json::Value;

use crate::{browser::Browser, built::variable};

const WIDTHS: [u32; 2] = [1280, 360];
const SCHEMES: [&str; 2] = ["light", "dark"];
/// Pictures of the docs are small.
const MOST_BYTES: usize = 150_000;

/// Takes a picture at each width and in each scheme. Nothing may overflow, and axe may find nothing serious.
pub(crate) async fn take(browser: &Browser, name: &str) {
    // The numbers stand still.
    browser.click("#pause").await;
    for width in WIDTHS {
        for scheme in SCHEMES {
            browser.show(width, scheme).await;
            let wide = browser.run("return document.documentElement.scrollWidth").await;
            assert!(wide.as_u64().unwrap() <= width.into(), "{name} at {width}: the page is {wide} wide");
            let picture = browser.screenshot().await;
            fs::write(directory().join(format!("{name}-{width}-{scheme}.png")), picture).unwrap();
            check_accessibility(browser, &format!("{name}, {width}, {scheme}")).await;
        }
    }
    browser.show(1280, "light").await;
    browser.click("#pause").await;
}

/// Writes a picture of the docs, if this run is to do so.
pub(crate) async fn take_for_docs(browser: &Browser, selector: &str, name: &str) {
    let picture = browser.screenshot_of(selector).await;
    assert!(picture.len() <= MOST_BYTES, "{name} has {} bytes", picture.len());
    fs::write(directory().join(name), &picture).unwrap();
    if env::var_os("TOLLGATE_PICTURES").is_some() {
        fs::write(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name), picture).unwrap();
    }
}

async fn check_accessibility(browser: &Browser, place: &str) {
    let axe = fs::read_to_string(variable("TOLLGATE_AXE")).unwrap();
    browser.run(&axe).await;
    let found = browser.run_async("return (await axe.run(document)).violations").await;
    let is_serious = |found: &&Value| ["serious", "critical"].contains(&found["impact"].as_str().unwrap_or_default());
    let describe = |found: &Value| format!("{}: {} {}", found["id"], found["help"], found["nodes"][0]["html"]);
    let serious: Vec<_> = found.as_array().unwrap().iter().filter(is_serious).map(describe).collect();
    assert!(serious.is_empty(), "{place}: {serious:#?}");
}

fn directory() -> PathBuf {
    let directory = PathBuf::from(variable("TOLLGATE_BROWSER_OUTPUT"));
    fs::create_dir_all(&directory).unwrap();
    directory
}
