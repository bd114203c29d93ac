//! An outage over time: what one client gets under each failure policy, and the state of the breaker.

mod chart;
mod client;
mod load;

use std::{thread, time::Duration};

use serde_json::json;
use tollgate::FailurePolicy;

use self::client::Watched;
use self::load::{SLICE, Times};
use crate::{Result, args::Args, report::Report, server::Server};

pub fn run(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let unit = Duration::from_secs_f64(if args.quick { 0.3 } else { args.seconds });
    let times = Times { frozen: unit, back: 3 * unit, end: 5 * unit };
    let redis = server.process()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let watched = [FailurePolicy::Open, FailurePolicy::Closed, FailurePolicy::Local]
        .map(|policy| Watched::new(server, policy))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    runtime.block_on(async {
        for watched in &watched {
            watched.limiter.ready().await?;
        }
        let start = tokio::time::Instant::now();
        let clients: Vec<_> =
            watched.iter().map(|watched| tokio::spawn(watched.clone().send(start, times.end))).collect();
        tokio::time::sleep_until(start + times.frozen).await;
        redis.signal("STOP")?;
        tokio::time::sleep_until(start + times.back).await;
        redis.signal("CONT")?;
        for client in clients {
            client.await?;
        }
        Ok::<_, crate::BoxError>(())
    })?;
    // The last requests get their answers.
    thread::sleep(SLICE);
    for watched in &watched {
        let (slices, states) = (watched.slices(times.end), watched.states());
        println!("\n{}", watched.name());
        for (number, slice) in slices.iter().enumerate() {
            let at = SLICE.as_secs_f64() * number as f64;
            println!(
                "  {at:>5.1} s  {:>3} passed  {:>3} got 429  {:>3} got 503",
                slice.passed, slice.denied, slice.closed
            );
            report.figure(json!({
                "policy": watched.name(), "at": at,
                "passed": slice.passed, "denied": slice.denied, "closed": slice.closed,
            }));
        }
        for (at, state) in &states {
            println!("  breaker {state} at {:.2} s", at.as_secs_f64());
        }
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, chart::draw(&watched, times, &server.version()?))?;
    }
    Ok(())
}
