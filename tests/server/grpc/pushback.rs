//! `grpc-retry-pushback-ms` and `RetryInfo` are exact.

use std::time::Duration;

use tollgate::Policy;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::probe::{Probe, check, layer_with_clock, refused, serve, text};

fn pushback(status: &Status) -> Duration {
    Duration::from_millis(text(status.metadata(), "grpc-retry-pushback-ms").unwrap().parse().unwrap())
}

/// The wait in the details, which must equal the pushback.
fn retry_delay(status: &Status) -> Duration {
    status.get_details_retry_info().unwrap().retry_delay.unwrap()
}

#[tokio::test]
async fn law_5_a_call_passes_after_the_pushback_and_not_a_millisecond_earlier() {
    let (limit, clock) = layer_with_clock(Policy::new("p", 2, Duration::from_millis(1_500)).unwrap());
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    clock.advance(Duration::from_millis(400));
    check(&channel).await.unwrap();

    let status = refused(check(&channel).await, Code::ResourceExhausted);
    let wait = pushback(&status);
    assert_eq!((wait, retry_delay(&status)), (Duration::from_millis(1_100), wait));
    clock.advance(wait - Duration::from_millis(1));
    assert_eq!(pushback(&refused(check(&channel).await, Code::ResourceExhausted)).as_millis(), 1);
    clock.advance(Duration::from_millis(1));
    check(&channel).await.unwrap();
}

#[tokio::test]
async fn a_client_that_obeys_the_pushback_completes_every_call() {
    let (limit, clock) = layer_with_clock(Policy::per_second("p", 3).unwrap());
    let probe = Probe::default();
    let channel = serve(&probe, limit).await;
    let mut refusals = 0;
    while probe.calls() < 20 {
        clock.advance(Duration::from_millis(7));
        while let Err(status) = check(&channel).await {
            refusals += 1;
            clock.advance(pushback(&status));
        }
    }
    // One refusal per window of three calls, and never two in a row.
    assert_eq!(refusals, 6);
}

#[tokio::test]
async fn a_wait_below_a_millisecond_rounds_up_to_one() {
    let (limit, clock) = layer_with_clock(Policy::per_second("p", 1).unwrap());
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    clock.advance(Duration::from_micros(999_999));
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!((pushback(&status).as_millis(), retry_delay(&status).as_millis()), (1, 1));
}

/// The pushback is an `i32`; clients read a larger value as "do not retry".
#[tokio::test]
async fn a_wait_of_a_month_is_capped_in_the_pushback_only() {
    let (limit, _) = layer_with_clock(Policy::new("p", 1, Duration::from_secs(30 * 86_400)).unwrap());
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("2147483647"));
    assert_eq!(text(status.metadata(), "retry-after"), Some("2592000"));
    assert_eq!(retry_delay(&status).as_secs(), 2_592_000);
}
