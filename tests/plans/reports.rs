//! What operators see of look-ups: metrics, and lines that the plans write by themselves.

use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{ManualClock, plans::Plans};
use tracing::Level;

use super::{Answer, DEFAULT, SECOND, Source, limit, observed, plan, quiet, reporting_to, settle};
use crate::support::scrape::{assert_shows, recorder};
use crate::support::{app::limiter, log::Log, per_minute};

#[tokio::test(start_paused = true)]
async fn look_ups_and_requests_without_a_current_plan_are_counted() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let source = Source::new(plan(50));
    let plans = observed(source.plans(), Metrics::new());
    limit(&plans, "k");
    settle().await;
    limit(&plans, "k");
    source.answers(Answer::Error);
    tokio::time::sleep(SECOND * 60).await;
    for _ in 0..2 {
        limit(&plans, "k");
        settle().await;
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_plan_lookups_total{outcome="found"} 1"#,
            r#"tollgate_plan_lookups_total{outcome="failed"} 1"#,
            r#"tollgate_plan_lookup_duration_seconds_count{outcome="found"} 1"#,
            r#"tollgate_plan_fallbacks_total{plan="default",cause="unanswered"} 1"#,
            r#"tollgate_plan_fallbacks_total{plan="stale",cause="unanswered"} 1"#,
            r#"tollgate_plan_fallbacks_total{plan="stale",cause="failed"} 1"#,
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn law_13_failed_look_ups_are_reported_once_and_say_why() {
    let (log, _guard) = Log::start(Level::WARN);
    let twice = Answer::Policies(vec![per_minute("p", 1), per_minute("p", 2)]);
    for (answer, said) in [
        (Answer::Error, "looked up: the database is away"),
        (Answer::Panic, "the source of the plans panicked"),
        (Answer::Never, "has not answered within 5"),
        (twice, "two policies of one check are called \"p\""),
    ] {
        let clock = tollgate::clock::TokioClock::new();
        let plans = Plans::new(Source::new(answer), per_minute("p", DEFAULT)).unwrap().with_clock(clock);
        for number in 0..10 {
            limit(&plans, &format!("client {number}"));
        }
        tokio::time::sleep(SECOND * 6).await;
        let lines = log.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("WARN tollgate::plans: A plan could not be looked up"), "{lines:?}");
        assert!(lines[0].contains(said), "{lines:?}");
        assert!(!lines[0].contains("client"), "{lines:?}");
    }
}

#[test]
fn law_13_plans_that_nothing_looks_up_say_so_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let plans = Plans::new(Source::new(plan(50)), per_minute("p", DEFAULT)).unwrap();
    for _ in 0..3 {
        limit(&plans, "k");
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("does not run in a tokio runtime"), "{lines:?}");
    limit(&quiet(plans), "k");
    assert!(log.take().is_empty());
}

#[test]
fn law_13_an_observer_that_writes_the_events_says_why_no_plan_is_looked_up() {
    let (log, _guard) = Log::start(Level::WARN);
    let plans = Plans::new(Source::new(plan(50)), per_minute("p", DEFAULT)).unwrap();
    let observer = Tracing::new().with_clock(ManualClock::default());
    let plans = reporting_to(limiter().with_observer(observer), plans);
    for _ in 0..3 {
        limit(&plans, "k");
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN tollgate::plans: Plans are not looked up: "), "{lines:?}");
    assert!(lines[0].contains("`Plans::with_runtime`. cause=\"no_runtime\" is_stale=false left_out=0"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_writes_the_events_replaces_the_lines() {
    let (log, _guard) = Log::start(Level::DEBUG);
    let source = Source::new(Answer::Error);
    let plans = Plans::new(source.clone(), per_minute("p", DEFAULT)).unwrap();
    let plans = reporting_to(limiter().with_observer(Tracing::new()), plans);
    limit(&plans, "k");
    settle().await;
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("outcome=\"failed\" left_out=0"), "{lines:?}");

    source.answers(plan(50));
    plans.forget("k");
    limit(&plans, "k");
    settle().await;
    let lines = log.take();
    assert!(lines[0].starts_with("DEBUG tollgate::plans: looked up outcome=\"found\""), "{lines:?}");
}
