//! Addresses of Redis that need a feature which is off.
#![cfg(not(feature = "tls"))]

use tollgate::RedisStore;

#[test]
fn an_encrypted_address_without_the_feature_is_an_error_that_says_so() {
    for url in ["rediss://127.0.0.1:1", "rediss://:hunter2@host"] {
        let shown = RedisStore::connect(url).unwrap_err().to_string();
        assert!(shown.contains("feature `tls`") && !shown.contains("hunter2"), "{url}: {shown}");
    }
}
