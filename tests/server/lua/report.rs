//! Replies of the script. What the script leaves to the client is computed here naively, from the definition of each
//! algorithm and by bisection.

use super::policy::{FIXED_WINDOW, Policy, SLIDING_WINDOW_COUNTER, SLIDING_WINDOW_LOG};

/// The report of a charge: fits, available, retry_after (-1 for none), next unit, reset.
pub(crate) type Report = (u8, u64, f64, f64, f64);

/// The unread numbers of a reply without errors.
pub(crate) struct Numbers {
    pub(crate) time: f64,
    numbers: std::vec::IntoIter<f64>,
    times: std::vec::IntoIter<f64>,
    more: std::vec::IntoIter<f64>,
}

impl Numbers {
    /// Reads a reply. Panics with its errors, if it has any.
    pub(crate) fn read(reply: &[u8], charges: usize) -> Self {
        let (numbers, errors) = Self::read_with_errors(reply, charges);
        assert_eq!(errors, "");
        numbers
    }

    /// Reads a reply, and the texts of its errors.
    pub(crate) fn read_with_errors(reply: &[u8], charges: usize) -> (Self, String) {
        let double = |index: usize| f64::from_le_bytes(reply[8 * index..][..8].try_into().unwrap());
        let numbers: Vec<_> = (1..=charges).map(double).collect();
        let times: Vec<_> = (charges + 1..=2 * charges).map(double).collect();
        let errors: f64 =
            numbers.iter().zip(&times).filter(|(number, _)| **number < 0.0).map(|(_, length)| length).sum();
        let errors = reply.len() - errors as usize;
        let more: Vec<_> = (2 * charges + 1..errors / 8).map(double).collect();
        let read =
            Self { time: double(0), numbers: numbers.into_iter(), times: times.into_iter(), more: more.into_iter() };
        (read, String::from_utf8_lossy(&reply[errors..]).into_owned())
    }

    /// Whether the reply has no more numbers.
    pub(crate) fn is_read(&self) -> bool {
        self.numbers.len() + self.times.len() + self.more.len() == 0
    }

    /// The report of the next charge; `None` if its check has failed.
    pub(crate) fn next_report(&mut self, policy: Policy, cost: u64) -> Option<Report> {
        let (number, time) = (self.numbers.next().unwrap(), self.times.next().unwrap());
        if number < 0.0 {
            return None;
        }
        let number = number as u64;
        let (fits, has_more, number) = (number % 2 == 1, number / 2 % 2 == 1, number / 4);
        let mut more = || self.more.next().unwrap();
        if policy.algorithm == SLIDING_WINDOW_LOG {
            let resolution = policy.parameter;
            let newest = (self.time as u64).next_multiple_of(resolution);
            let (available, retry_after, reset) = match (has_more, fits) {
                (true, true) => (number, -1.0, more()),
                (true, false) => (number, more(), more()),
                (false, true) => (number, -1.0, newest as f64 - self.time + policy.window_us as f64),
                (false, false) => (0, time, number as f64),
            };
            return Some((fits.into(), available, retry_after, time, reset));
        }
        let previous = if has_more { more() as u64 } else { 0 };
        let count = Count { policy, number, time: time as u64, previous };
        let available = first_that(|units| !count.fits_after(0, units)).saturating_sub(1);
        let wait = |units| first_that(|wait| count.fits_after(wait, units)) as f64;
        let capacity = policy.capacity();
        let is_denied = !fits && cost <= capacity;
        Some((
            fits.into(),
            available.min(capacity),
            if is_denied { wait(cost) } else { -1.0 },
            wait(capacity.min(available + 1)),
            wait(capacity),
        ))
    }

    /// The report of the only charge.
    pub(crate) fn report(mut self, policy: Policy, cost: u64) -> Report {
        self.next_report(policy, cost).unwrap()
    }
}

/// The count of a reply.
struct Count {
    policy: Policy,
    number: u64,
    time: u64,
    previous: u64,
}

impl Count {
    /// Whether `units` fit after a wait.
    fn fits_after(&self, wait: u64, units: u64) -> bool {
        let Policy { limit, window_us: window, parameter: burst, .. } = self.policy;
        // The time left in the window of the reply, and in the next one.
        let left = |windows: u64| u128::from((self.time + windows * window).saturating_sub(wait).min(window));
        let carried = |count: u64, left: u128| u128::from(count) * left / u128::from(window);
        let (count, is_current) = (u128::from(self.number), wait < self.time);
        let spent = match self.policy.algorithm {
            FIXED_WINDOW => {
                if is_current {
                    count
                } else {
                    0
                }
            }
            SLIDING_WINDOW_COUNTER if is_current => carried(self.previous, left(0)) + count,
            SLIDING_WINDOW_COUNTER => carried(self.number, left(1)),
            _ => {
                // In parts of a microsecond that has `limit` parts.
                let parts = |time: u64| u128::from(time) * u128::from(limit);
                let debt = (parts(self.time) + count).saturating_sub(parts(wait));
                return debt + u128::from(units) * u128::from(window) <= u128::from(burst) * u128::from(window);
            }
        };
        spent + u128::from(units) <= limit.into()
    }
}

/// The first number for which a condition holds that holds from some number on.
fn first_that(holds: impl Fn(u64) -> bool) -> u64 {
    if holds(0) {
        return 0;
    }
    let (mut low, mut high) = (0, 1);
    while !holds(high) {
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        *if holds(middle) { &mut high } else { &mut low } = middle;
    }
    high
}
