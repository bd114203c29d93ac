//! No file lifts all limits unless it says so.

use super::{check, with_policy};

#[test]
fn law_14_no_accepted_file_limits_nothing() {
    let policy = "policies.p.rate = \"60/min\"\npolicies.q.rate = \"5/min\"\n";
    let files = [
        String::new(),
        policy.to_owned(),
        format!("{policy}default = {{}}"),
        format!("{policy}default.policies = []"),
        format!("{policy}default = {{ policies = [\"p\"], exempt = true }}"),
        format!("{policy}default.exempt = true"),
        format!("{policy}default = {{ policies = [\"p\"], cost = 0 }}"),
        format!("{policy}default = {{ policies = [\"p\", \"q\"], costs = {{ p = 0, q = 0 }} }}"),
        format!(
            "{policy}default = {{ policies = [\"p\", \"q\"], costs = {{ p = 0 }} }}\nroutes.\"/a\".policies = [\"p\"]"
        ),
        format!(
            "{policy}policies.s = {{ rate = \"5/min\", shadow = true }}\n\
             default = {{ policies = [\"p\", \"s\"], costs = {{ p = 0 }} }}"
        ),
        with_policy("routes.\"/a\".cost = 0"),
        with_policy("routes.\"/a\".policies = []"),
        with_policy("routes.\"/{*all}\".exempt = true"),
        with_policy("routes.\"/{*all}\".exempt = true\nroutes.\"/healthz\".exempt = true"),
        with_policy("routes.\"/\".exempt = true\nroutes.\"/{first}/{*rest}\".exempt = true"),
        // Hardly a server answers TRACE, which is left.
        with_policy(
            &["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]
                .map(|method| format!("routes.\"{method} /{{*rest}}\".exempt = true\n"))
                .concat(),
        ),
    ];
    for file in files {
        assert!(check(&file).is_err(), "accepted:\n{file}");
    }
}

#[test]
fn exempt_routes_beside_limited_ones_are_accepted() {
    let all_but_login = "routes.\"/{*rest}\".exempt = true\nroutes.\"POST /login\".cost = 2";
    for text in [all_but_login, "routes.\"/static/{*rest}\".exempt = true", "routes.\"GET /{*rest}\".exempt = true"] {
        check(&with_policy(text)).unwrap();
    }
    // Two policies, of which each request is charged under one.
    let file = "policies.p.rate = \"5/s\"\npolicies.q.rate = \"5/s\"\ndefault = { policies = [\"p\", \"q\"], costs = { p = 0 } }";
    check(file).unwrap();
}
