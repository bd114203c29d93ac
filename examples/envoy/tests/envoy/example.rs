//! The configurations of the README.

use crate::proxy::Envoy;
use crate::support::{Service, ports::free_port};

/// Replaces ports, all at once: a new port may have the number of an old one.
fn with_ports(yaml: &str, ports: &[(u16, u16)]) -> String {
    const NAME: &str = "port_value: ";
    let (first, rest) = yaml.split_once(NAME).unwrap();
    rest.split(NAME).fold(first.to_owned(), |yaml, part| {
        let (old, after) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap());
        let (_, new) = ports.iter().find(|(port, _)| port.to_string() == old).unwrap();
        format!("{yaml}{NAME}{new}{after}")
    })
}

#[test]
fn a_new_port_with_the_number_of_an_old_one_stays() {
    let yaml = "a: { port_value: 1 }\nb: { port_value: 2 }\n";
    assert_eq!(with_ports(yaml, &[(1, 2), (2, 1)]), "a: { port_value: 2 }\nb: { port_value: 1 }\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_settles_each_hold_by_its_response() {
    let service = Service::start(include_str!("../../limits.yaml")).await;
    let port = free_port();
    let model = free_port();
    // Ports of this test, and more time than on a machine of one's own.
    let ports = [(10_000, port), (10_001, model), (8_081, service.address.port())];
    let yaml = with_ports(include_str!("../../envoy.yaml"), &ports).replace("timeout: 0.02s", "timeout: 5s");
    let Some(envoy) = Envoy::run(port, &yaml) else { return };
    let client = reqwest::Client::new();
    let fields = [("x-tenant", "a"), ("x-estimate", "400")];
    let mut passed = 0;
    loop {
        let response = envoy.get(&client, &fields).await;
        if response.status() == 429 {
            assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"tokens\";r="), "{response:?}");
            break;
        }
        assert_eq!((response.status().as_u16(), response.headers()["x-spent"].to_str().unwrap()), (200, "120"));
        passed += 1;
        assert!(passed <= 8);
        // The settlement follows the response.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    // 400 fit beside 5 times 120, and not beside 6 times.
    assert_eq!(passed, 6);
    assert_eq!(envoy.get(&client, &[("x-tenant", "b"), ("x-estimate", "400")]).await.status(), 200);
    // Envoy makes no descriptor of these, so no limit would apply.
    let (tenant, estimate) = (("x-tenant", "c"), ("x-estimate", "1"));
    for wrong in ["", "abc", "-1", "1,2", "1.5", "12345678901234567890"] {
        let wrong = ("x-estimate", wrong);
        for fields in [&[tenant, wrong][..], &[tenant, wrong, estimate], &[tenant, estimate, wrong]] {
            assert_eq!(envoy.get(&client, fields).await.status(), 400, "{fields:?}");
        }
    }
    for fields in [tenant, estimate] {
        assert_eq!(envoy.get(&client, &[fields]).await.status(), 400, "{fields:?}");
    }
    // These it makes one of.
    for fields in [&[tenant, estimate, ("x-estimate", "2")][..], &[("x-tenant", ""), estimate]] {
        let response = envoy.get(&client, fields).await;
        let limits = response.headers()["ratelimit"].to_str().unwrap();
        assert!(response.status() == 200 && limits.contains("\"tokens\";r="), "{response:?}");
    }
}
