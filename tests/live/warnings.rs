//! What is probably wrong with limits that are in force.

use tollgate::{GlobalKey, LiveLimits, middleware::Settlement};
use tracing::Level;

use super::files::{limits, only};
use crate::limits::warnings::Warned;
use crate::support::app::{down_limiter, limiter};
use crate::support::{log::Log, recorder::assert_warnings, says};

const UNUSED: &str = "policies.p.rate = '60/min'\npolicies.login.rate = '5/min'\ndefault.policies = ['p']";

const LOGIN: (&str, &str) = ("uncharged_policy", "no entry of the limits charges policy \"login\"");

#[test]
fn law_13_a_policy_that_no_entry_charges_is_reported_for_each_change() {
    let warned = Warned::default();
    let live = LiveLimits::new(limits(UNUSED));
    let limiter = limiter().without_notices().with_observer(warned.clone());
    let layers: Vec<_> = (0..2).map(|_| live.layer(limiter.clone(), GlobalKey).unwrap()).collect();
    assert_warnings(&warned.take(), &[LOGIN]);
    live.replace(only("rate = '60/min'")).unwrap();
    assert_eq!(warned.take(), []);
    live.replace(limits(UNUSED)).unwrap();
    assert_warnings(&warned.take(), &[LOGIN]);
    drop(layers);
}

#[test]
fn law_13_a_policy_that_no_entry_charges_is_a_line_of_the_log() {
    let (log, _guard) = Log::start(Level::INFO);
    let live = LiveLimits::new(limits(UNUSED));
    let layer = live.layer(limiter(), GlobalKey).unwrap();
    let lines = log.take();
    assert!(
        matches!(&lines[..], [line] if line.starts_with("WARN tollgate::setup: no entry of the limits")),
        "{lines:?}"
    );
    drop(layer);
}

/// Each request would otherwise be refused with 500.
#[test]
fn limits_whose_holds_a_layer_cannot_have_are_refused() {
    let live = LiveLimits::new(only("rate = '60/min'\nholds = true"));
    let settles = live.layer(limiter(), GlobalKey).unwrap().with_settlement(|_| Settlement::AtEnd);
    let error = live.replace(only("rate = '60/min'")).unwrap_err();
    says(error, r#"policy "p" has no holds; "#);
    live.replace(only("rate = '30/min'\nholds = { ttl = '5m' }")).unwrap();
    drop(settles);
    live.replace(only("rate = '60/min'")).unwrap();
    let without_holds = down_limiter().without_notices();
    let layer = live.layer(without_holds, GlobalKey).unwrap();
    says(live.replace(only("concurrent = 3")).unwrap_err(), "the store has no holds; ");
    drop(layer);
}
