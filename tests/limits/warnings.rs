//! What is probably wrong in a file that can be used.

use std::sync::{Arc, Mutex};

use tollgate::GlobalKey;
use tollgate::observe::{Event, Observer, Warning};

use super::{check, with_policy};
use crate::support::{app::limiter, recorder::assert_warnings};

#[derive(Clone, Default)]
pub(crate) struct Warned(Arc<Mutex<Vec<Warning>>>);

impl Warned {
    pub(crate) fn take(&self) -> Vec<Warning> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Warned {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(warning) = event.warning() {
            self.0.lock().unwrap().push(warning.clone());
        }
    }
}

/// The route of the login was forgotten, or its name changed.
#[test]
fn law_13_a_policy_that_no_entry_charges_is_reported_once() {
    let limits = check(&with_policy("policies.login.rate = \"5/min\"")).unwrap();
    let forgotten = [("uncharged_policy", "no entry of the limits charges policy \"login\"")];
    assert_warnings(limits.warnings(), &forgotten);
    let warned = Warned::default();
    let limiter = limiter().without_notices().with_observer(warned.clone());
    for _ in 0..2 {
        let _ = limits.clone().layer(limiter.clone(), GlobalKey).unwrap();
    }
    assert_warnings(&warned.take(), &forgotten);
    assert!(limits.warnings()[0].to_string().contains("in-code = true"));
    let left_to_code = check(&with_policy("policies.login = { rate = \"5/min\", in-code = true }")).unwrap();
    assert_ne!(limits, left_to_code);
}

/// All requests but those of one route pass, and the policy of the default looks as if it limited them.
#[test]
fn law_13_a_policy_that_an_exemption_of_everything_else_disables_is_reported() {
    let login = "policies.login.rate = \"5/min\"\nroutes.\"POST /login\".policies = [\"login\"]\n";
    let exempt = "routes.\"/{*rest}\".exempt = true\n";
    let limits = check(&with_policy(&format!("{login}{exempt}"))).unwrap();
    assert_warnings(limits.warnings(), &[("uncharged_policy", "\"/{*rest}\" covers every request")]);
    // One method is left to the default.
    let of_get = exempt.replace("/{*rest}", "GET /{*rest}");
    assert_eq!(check(&with_policy(&format!("{login}{of_get}"))).unwrap().warnings(), []);
}

#[test]
fn policies_that_something_charges_are_not_reported() {
    let in_code = "policies.exports = { rate = \"5/min\", in-code = true }";
    let inherited = "routes.\"/{*rest}\".exempt = true\nroutes.\"POST /login\".cost = 2";
    let by_route = "policies.login.rate = \"5/min\"\nroutes.\"/login\".policies = [\"LOGIN\"]";
    for text in [in_code, inherited, by_route] {
        assert_eq!(check(&with_policy(text)).unwrap().warnings(), [], "{text}");
    }
    // It is in a list, and costs nothing wherever it is.
    let free = "policies.q.rate = \"5/min\"\nroutes.\"/a\" = { policies = [\"p\", \"q\"], costs = { q = 0 } }";
    assert_warnings(check(&with_policy(free)).unwrap().warnings(), &[("uncharged_policy", "policy \"q\"")]);
}
