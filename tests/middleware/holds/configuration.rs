//! Wrong configurations are errors where they are written.

use http::request::Parts;
use tollgate::policy::{Algorithm, HoldSettings};
use tollgate::{Key, Policy, RateLimitLayer, Route, middleware::Settlement};

use super::{Ledger, at_end, one_client, tokens, uploads};
use crate::support::{DownStore, says};

#[test]
fn a_layer_that_settles_needs_a_policy_with_holds() {
    let limiter = Ledger::default().limiter();
    let plain = || Policy::per_minute("plain", 10).unwrap();
    let error =
        RateLimitLayer::new(limiter.clone(), plain(), one_client()).with_settlement(at_end).validated().unwrap_err();
    says(error, r#"policy "plain" has no holds; call `.with_holds(HoldSettings::new())` on it"#);

    for policies in [vec![plain(), tokens()], vec![uploads()]] {
        assert!(
            RateLimitLayer::new(limiter.clone(), policies, one_client()).with_settlement(at_end).validated().is_ok()
        );
    }
    let layer = RateLimitLayer::new(limiter.clone(), plain(), one_client());
    assert!(
        layer.clone().route("/generate", Route::new().policies(tokens())).with_settlement(at_end).validated().is_ok()
    );
    assert!(layer.and(tokens(), |_: &Parts| Key::from("other")).with_settlement(at_end).validated().is_ok());
    let chosen = move |_: &Parts, _: &Key| plain();
    assert!(RateLimitLayer::new(limiter, chosen, one_client()).with_settlement(at_end).validated().is_ok());
}

#[test]
fn a_store_without_holds_is_an_error() {
    let limiter = tollgate::Limiter::new(DownStore);
    let error =
        RateLimitLayer::new(limiter.clone(), tokens(), one_client()).with_settlement(at_end).validated().unwrap_err();
    says(error, "the store has no holds; ");
    let error = RateLimitLayer::new(limiter.clone(), uploads(), one_client()).validated().unwrap_err();
    says(error, "the store has no holds; ");
    let plain = RateLimitLayer::new(limiter, tokens(), one_client()).validated();
    assert!(plain.is_ok(), "nothing is held without `settle`");
}

#[test]
fn a_concurrency_limit_has_holds_that_are_released() {
    let policy = uploads();
    assert!(policy.window().is_none() && tokens().window().is_some());
    assert_eq!((policy.limit(), policy.capacity(), policy.unit()), (3, 3, Some("concurrent-requests")));
    assert!(policy.holds().unwrap().unsettled_released());
    let kept = policy.clone().with_holds(HoldSettings::new()).with_denials_counted(true);
    let kept = kept.with_algorithm(Algorithm::FixedWindow).with_shadow(true);
    assert!(kept.holds().unwrap().unsettled_released());
    assert!(kept.window().is_none() && !kept.denials_counted());
    assert!(policy.clone().with_shards(2).validated().is_err());
    assert!(policy.ban_after(1, std::time::Duration::from_secs(1)).validated().is_ok());
    says(Policy::concurrent("uploads", 0).unwrap_err(), "a limit of 0 lets nothing through; ");
    says(Policy::concurrent("up loads", 1).unwrap_err(), r#"policy name "up loads" is not usable in a header: "#);
}

/// The parts of a response, not its body, decide: a function works as well as a closure.
#[test]
fn a_function_settles() {
    fn settle(_: &http::response::Parts) -> Settlement {
        Settlement::Held
    }
    assert!(
        RateLimitLayer::new(Ledger::default().limiter(), tokens(), one_client())
            .with_settlement(settle)
            .validated()
            .is_ok()
    );
}
