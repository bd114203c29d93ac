//! `grpc-retry-pushback-ms` and `RetryInfo` tell the truth.

use std::time::Duration;

use tollgate::Policy;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::probe::{Probe, check, refused, serve, text, timed};

fn pushback(status: &Status) -> Duration {
    Duration::from_millis(text(status.metadata(), "grpc-retry-pushback-ms").unwrap().parse().unwrap())
}

/// The wait in the details, which is another way to say the same.
fn retry_delay(status: &Status) -> Duration {
    status.get_details_retry_info().unwrap().retry_delay.unwrap()
}

#[tokio::test]
async fn law_5_a_client_that_waits_the_pushback_passes_and_not_a_millisecond_earlier() {
    let (limit, clock) = timed(Policy::new("p", 2, Duration::from_millis(1_500)).unwrap());
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
async fn a_client_that_retries_as_told_gets_every_call_through() {
    let (limit, clock) = timed(Policy::per_second("p", 3).unwrap());
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
    // One at the end of every window of three calls: never refused twice in a row.
    assert_eq!(refusals, 6);
}

#[tokio::test]
async fn a_part_of_a_millisecond_is_a_whole_one() {
    let (limit, clock) = timed(Policy::per_second("p", 1).unwrap());
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    clock.advance(Duration::from_micros(999_999));
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!((pushback(&status).as_millis(), retry_delay(&status).as_millis()), (1, 1));
}

/// The pushback is an `i32`; one that does not fit would be read as: never.
#[tokio::test]
async fn a_wait_of_a_month_is_cut_in_the_pushback_alone() {
    let (limit, _) = timed(Policy::new("p", 1, Duration::from_secs(30 * 86_400)).unwrap());
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("2147483647"));
    assert_eq!(text(status.metadata(), "retry-after"), Some("2592000"));
    assert_eq!(retry_delay(&status).as_secs(), 2_592_000);
}
