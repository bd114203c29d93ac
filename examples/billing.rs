//! A monthly quota that is billed: what a customer has left, and when its month ends.
//!
//! Run it with `cargo run --release -p examples --features zones --example billing`.
//!
//! The plan includes 1 000 units a month, from the 15th at nine in Berlin. A customer with a subscription has months of
//! its own, from the day and the time at which it has subscribed.

use std::time::{Duration, SystemTime};

use tollgate::{Calendar, ConfigError, Limiter, MemoryStore, Policy};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Policy::calendar("plan", 1_000, Calendar::monthly().on_day(15).at(9, 0).zone("Europe/Berlin"))?;
    let subscription = subscribed("subscription", SystemTime::now() - 40 * DAY)?;
    // In a service: `RedisStore::open("redis://127.0.0.1:6379")?`.
    let limiter = Limiter::new(MemoryStore::new());

    for (policy, cost) in [(&plan, 600), (&plan, 600), (&subscription, 600)] {
        let decision = limiter.check("customer:7", policy, cost).await?;
        let standing = &decision.policies()[0];
        let days = standing.reset.as_secs() / DAY.as_secs();
        let verdict = if decision.is_allowed() { "allowed" } else { "denied " };
        let (name, left) = (policy.name(), standing.available);
        println!("{name:<12}  {cost} units {verdict}, {left} left, {days} days until the next month");
    }
    if let Some(month) = plan.calendar_window(SystemTime::now()) {
        let length = month.end.duration_since(month.start)?;
        println!("The month of the plan has {} days.", length.as_secs() / DAY.as_secs());
    }
    Ok(())
}

/// 1 000 units in each month of a subscription.
fn subscribed(name: &str, start: SystemTime) -> Result<Policy, ConfigError> {
    Policy::calendar(name, 1_000, Calendar::anchored(start))
}
