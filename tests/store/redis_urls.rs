//! Redis URLs that need a disabled feature.
#![cfg(not(feature = "tls"))]

use tollgate::RedisStore;

#[test]
fn a_tls_url_without_the_feature_is_an_error_that_names_the_feature() {
    for url in ["rediss://127.0.0.1:1", "rediss://:hunter2@host"] {
        let shown = RedisStore::open(url).unwrap_err().to_string();
        assert!(shown.contains("feature `tls`") && !shown.contains("hunter2"), "{url}: {shown}");
    }
}
