//! Floods of keys that clients make up, beside the keys of customers.

use std::sync::{Arc, Mutex};
use std::{cell::Cell, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate::plans::{PlanSource, Plans};
use tollgate::{Key, Policy, clock::TokioClock};

use super::{DEFAULT, SECOND, limit, quiet};
use crate::support::per_minute;

/// The limit of a customer's plan.
const PAID: u64 = 1_000;
/// How long a look-up takes.
const LATENCY: Duration = Duration::from_millis(100);

/// Accounts in a slow database: keys that begin with `customer` have a plan.
#[derive(Clone, Debug, Default)]
struct Accounts {
    /// The keys that were looked up, in their order.
    asked: Arc<Mutex<Vec<Key>>>,
    on_their_way: Arc<Mutex<(usize, usize)>>,
}

impl Accounts {
    fn plans(&self) -> Plans {
        quiet(Plans::new(self.clone(), per_minute("p", DEFAULT)).unwrap().with_clock(TokioClock::new()))
    }

    fn asked_for(&self, key: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == Key::from(key)).count()
    }

    /// The most look-ups that were on their way at once.
    fn most_at_once(&self) -> usize {
        self.on_their_way.lock().unwrap().1
    }
}

impl PlanSource for Accounts {
    type Plan = Option<Policy>;
    type Error = &'static str;

    async fn plan(&self, key: &Key) -> Result<Option<Policy>, &'static str> {
        self.asked.lock().unwrap().push(key.clone());
        {
            let mut count = self.on_their_way.lock().unwrap();
            count.0 += 1;
            count.1 = count.1.max(count.0);
        }
        sleep(LATENCY).await;
        self.on_their_way.lock().unwrap().0 -= 1;
        Ok(key.encoded().starts_with(b"customer").then(|| per_minute("p", PAID)))
    }
}

/// Requests with keys that were not used before.
struct Flood<'a> {
    plans: &'a Plans,
    next: Cell<u64>,
}

impl<'a> Flood<'a> {
    fn new(plans: &'a Plans) -> Self {
        Self { plans, next: Cell::new(0) }
    }

    /// A hundred requests in a millisecond.
    async fn millisecond(&self) {
        for _ in 0..100 {
            limit(self.plans, &format!("made up {}", self.next.get()));
            self.next.set(self.next.get() + 1);
        }
        sleep(Duration::from_millis(1)).await;
    }

    /// How long a customer who asks every 10 ms waits for the plan, at most `most`.
    async fn wait_of(&self, customer: &str, most: Duration) -> Duration {
        let started = Instant::now();
        for n in 0.. {
            self.millisecond().await;
            if n % 10 == 0 && limit(self.plans, customer) == PAID || started.elapsed() >= most {
                break;
            }
        }
        started.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_made_up_keys_leaves_room_for_the_look_up_of_a_known_key() {
    let accounts = Accounts::default();
    let plans = accounts.plans().with_stale_while_revalidate(Duration::ZERO);
    limit(&plans, "customer");
    sleep(SECOND).await;
    assert_eq!(limit(&plans, "customer"), PAID);
    // The plan is too old to be used when the customer comes back.
    sleep(SECOND * 61).await;
    let flood = Flood::new(&plans);
    for _ in 0..500 {
        flood.millisecond().await;
    }
    let wait = flood.wait_of("customer", SECOND * 10).await;
    assert!(wait <= LATENCY + Duration::from_millis(15), "the customer waited {wait:?}");
    assert_eq!(accounts.most_at_once(), 49, "three quarters of 64 for made-up keys, and the customer's");
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_the_service_reports_is_looked_up_under_a_flood_of_made_up_keys() {
    let accounts = Accounts::default();
    let plans = accounts.plans();
    let flood = Flood::new(&plans);
    for _ in 0..500 {
        flood.millisecond().await;
    }
    // The service vouches for the key, which this process has not seen before.
    plans.forget("customer");
    let wait = flood.wait_of("customer", SECOND * 10).await;
    assert!(wait <= LATENCY + Duration::from_millis(15), "the customer waited {wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_made_up_keys_pushes_no_known_key_out() {
    let accounts = Accounts::default();
    let plans = accounts.plans().with_capacity(100);
    let flood = Flood::new(&plans);
    for _ in 0..1_000 {
        flood.millisecond().await;
    }
    // Each customer is seen once while the flood goes on, like the made-up keys.
    let customers: Vec<_> = (0..30).map(|n| format!("customer {n}")).collect();
    for customer in &customers {
        plans.forget(customer.as_str());
        limit(&plans, customer);
        for _ in 0..10 {
            flood.millisecond().await;
        }
    }
    for _ in 0..5_000 {
        flood.millisecond().await;
    }
    let paid = customers.iter().filter(|customer| limit(&plans, customer) == PAID).count();
    assert_eq!(paid, 30);
    let made_up = accounts.asked.lock().unwrap().len();
    assert!(made_up > 2_000, "the flood was looked up: {made_up}");
    assert!(customers.iter().all(|customer| accounts.asked_for(customer) == 1));
}

/// An attacker with many accounts of his own, or a service with more customers than its database answers for.
#[tokio::test(start_paused = true)]
async fn the_look_ups_of_known_keys_leave_room_for_a_new_key() {
    let accounts = Accounts::default();
    let plans = accounts.plans().with_stale_while_revalidate(Duration::ZERO);
    let crowd: Vec<_> = (0..10_000).map(|n| format!("customer {n}")).collect();
    for customer in &crowd {
        plans.insert(customer.as_str(), per_minute("p", PAID)).unwrap();
    }
    sleep(SECOND * 61).await;
    let ask_all = async || {
        crowd.iter().for_each(|customer| drop(plans.get(customer.as_str())));
        sleep(Duration::from_millis(10)).await;
    };
    for _ in 0..10 {
        ask_all().await;
    }
    let started = Instant::now();
    while limit(&plans, "customer who is new") != PAID {
        ask_all().await;
    }
    let wait = started.elapsed();
    assert!(wait <= LATENCY + Duration::from_millis(25), "the new customer waited {wait:?}");
    assert_eq!(accounts.most_at_once(), 49, "three quarters of 64 for known keys, and the new one");
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_keys_together_start_no_more_look_ups_than_allowed() {
    for (most, at_once) in [(1, 1), (2, 2), (3, 3), (10, 10)] {
        let accounts = Accounts::default();
        let plans = accounts.plans().with_max_lookups(most);
        for n in 0..100 {
            plans.forget(format!("customer {n}"));
        }
        let flood = Flood::new(&plans);
        for _ in 0..300 {
            (0..100).for_each(|n| drop(plans.get(format!("customer {n}"))));
            flood.millisecond().await;
        }
        assert_eq!(accounts.most_at_once(), at_once);
    }
}
