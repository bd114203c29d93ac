//! The events of an observer, as values that a test compares.

use std::time::Duration;

use tollgate::observe::Event;

/// A change of the breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BreakerChange {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) sequence: u64,
}

impl BreakerChange {
    /// The change that the event reports, if it reports one.
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        let change = other(event, "breaker_change")?;
        let from = ["closed", "open", "probing"].into_iter().find(|state| *state == values(change, "from")[0]).unwrap();
        assert_eq!(values(change, "to"), [change.outcome()]);
        Some(Self { from, to: change.outcome(), sequence: change.number("sequence").unwrap() })
    }
}

/// A call of a store over a network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) checks: usize,
    pub(crate) charges: usize,
    pub(crate) answered: bool,
    pub(crate) elapsed: Duration,
}

impl Batch {
    /// The call that the event reports, if it reports one.
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        let other = other(event, "batch")?;
        let number = |name| values(other, name)[0].parse().unwrap();
        let answered = match other.outcome() {
            "answered" => true,
            "unanswered" => false,
            outcome => panic!("{outcome}"),
        };
        Some(Self { checks: number("checks"), charges: number("charges"), answered, elapsed: other.elapsed().unwrap() })
    }
}

/// The event, if it has this name.
pub(crate) fn other<'a, 'b>(event: &'b Event<'a>, name: &str) -> Option<&'b Event<'a>> {
    (event.name() == name).then_some(event)
}

/// The values of this name in the line of the event: `p` and `q` of `policy="p" cost=1, policy="q" cost=2`.
pub(crate) fn values(event: &Event<'_>, name: &str) -> Vec<String> {
    let (line, name) = (event.to_string(), format!(" {name}="));
    let values = line.split(&name).skip(1);
    values.map(|rest| rest.split([' ', ',']).next().unwrap().trim_matches('"').to_owned()).collect()
}
