//! Changes of the configuration while the service runs.

use std::fs;

use crate::support::{Service, domain, entries};

const TEN: &str = "{ key: k, rate_limit: { unit: year, requests_per_unit: 10 } }";

fn five() -> String {
    domain(&["{ key: k, rate_limit: { unit: year, requests_per_unit: 5 } }"])
}

#[tokio::test]
async fn a_change_applies_to_what_was_spent_before() {
    let service =
        Service::start(&domain(&[TEN, "{ key: other, rate_limit: { unit: year, requests_per_unit: 1 } }"])).await;
    let k = || entries([("k", "v")]);
    assert_eq!(service.passed(3, k()).await, 3);
    assert!(service.passes([entries([("other", "v")])]).await);
    service.folder.write("limits.yaml", five());
    service.until("the limit is 5", async |service| service.left(k()).await == 2).await;
    assert!(service.passes([entries([("other", "v")])]).await, "the rule is gone");
    service.folder.write("limits.yaml", domain(&[TEN]));
    service.until("the limit is 10", async |service| service.left(k()).await == 7).await;
}

#[tokio::test]
async fn a_wrong_or_missing_file_leaves_the_old_configuration() {
    let service = Service::start(&domain(&[TEN])).await;
    let k = || entries([("k", "v")]);
    assert_eq!(service.passed(4, k()).await, 4);
    let pause = || tokio::time::sleep(std::time::Duration::from_millis(700));
    for wrong in ["", "domain: test", "domain: test\ndescriptors: [{ key: k, rate_limit: {} }]", "domain: [", "\0"] {
        if wrong == "domain: test" {
            // A whole file without rules, so written in the middle.
            service.folder.write("limits.yaml", &five()[..5]);
        } else {
            service.folder.write("limits.yaml", wrong);
        }
        pause().await;
        assert_eq!(service.left(k()).await, 6, "{wrong}");
    }
    fs::remove_file(service.folder.path("limits.yaml")).unwrap();
    pause().await;
    assert_eq!(service.left(k()).await, 6);
    service.folder.write("limits.yaml", five());
    service.until("the new file applies", async |service| service.left(k()).await == 1).await;
}

#[tokio::test]
async fn a_file_that_grows_is_read_when_it_has_stopped() {
    let service = Service::start(&domain(&[TEN])).await;
    let k = || entries([("k", "v")]);
    let text = five();
    // A part of the file is a whole domain without rules.
    for end in [12, 13, 20, 26] {
        service.folder.write("limits.yaml", &text[..end]);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert_eq!(service.left(k()).await, 10);
    }
    service.folder.write("limits.yaml", &text);
    service.until("the whole file applies", async |service| service.left(k()).await == 5).await;
}

#[tokio::test]
async fn a_folder_that_is_deleted_leaves_the_old_configuration() {
    let service = Service::start_with(&domain(&[TEN]), |options| assert!(options.config.pop())).await;
    let k = || entries([("k", "v")]);
    let folder = service.folder.path("");
    fs::remove_dir_all(&folder).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(700)).await;
    assert_eq!(service.left(k()).await, 10);
    fs::create_dir(&folder).unwrap();
    service.folder.write("a.yaml", five());
    service.folder.write("b.yaml", "domain: other");
    service.until("the folder is back", async |service| service.left(k()).await == 5).await;
}
