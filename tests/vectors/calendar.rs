//! calendar.json: the window of a time under a calendar, on any store.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;
use tollgate::store::{Answer, Store};
use tollgate::{Calendar, Check, ManualClock, Policy, policy::Weekday};

use super::outcome::{Outcome, expect, id, unknown};

const LIMIT: u64 = 3;

pub(crate) async fn run(file: &Value, clock: &ManualClock, store: &dyn Store) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file.as_array().unwrap() {
        results.push((id(case), run_case(case, clock, store).await));
    }
    results
}

async fn run_case(case: &Value, clock: &ManualClock, store: &dyn Store) -> Outcome {
    let known = ["id", "every", "zone", "at", "day", "weekday", "month", "now_us", "start_us", "end_us"];
    if let Some(skipped) = unknown(case, &known) {
        return skipped;
    }
    let policy = match calendar(case).map(|calendar| Policy::calendar("p", LIMIT, calendar)) {
        Ok(policy) => policy.unwrap(),
        Err(outcome) => return outcome,
    };
    judge(case, &policy, clock, store).await.into()
}

fn calendar(case: &Value) -> Result<Calendar, Outcome> {
    let number = |name: &str| case[name].as_u64().map(|number| u8::try_from(number).unwrap());
    let mut calendar = match case["every"].as_str().unwrap() {
        "day" => Calendar::daily(),
        "week" => Calendar::weekly(),
        "month" => Calendar::monthly(),
        "year" => Calendar::yearly(),
        other => return Err(Outcome::Skipped(format!("every {other:?} is not supported"))),
    };
    if let Some(weekday) = case["weekday"].as_str() {
        calendar = calendar.on(match weekday {
            "monday" => Weekday::Monday,
            "tuesday" => Weekday::Tuesday,
            "wednesday" => Weekday::Wednesday,
            "thursday" => Weekday::Thursday,
            "friday" => Weekday::Friday,
            "saturday" => Weekday::Saturday,
            "sunday" => Weekday::Sunday,
            other => return Err(Outcome::Skipped(format!("weekday {other:?} is not supported"))),
        });
    }
    if let Some(day) = number("day") {
        calendar = calendar.on_day(day);
    }
    if let Some(month) = number("month") {
        calendar = calendar.in_month(month);
    }
    let (hour, minute) = case["at"].as_str().unwrap().split_once(':').unwrap();
    Ok(calendar.at(hour.parse().unwrap(), minute.parse().unwrap()).zone(case["zone"].as_str().unwrap()))
}

/// The limit passes at the start of the window, and then once more at its end, and not a microsecond earlier.
async fn judge(case: &Value, policy: &Policy, clock: &ManualClock, store: &dyn Store) -> Result<(), String> {
    let time = |name: &str| case[name].as_u64().unwrap();
    let (now_us, start_us, end_us) = (time("now_us"), time("start_us"), time("end_us"));
    let at = |time_us| UNIX_EPOCH + Duration::from_micros(time_us);
    expect("window", &policy.calendar_window(at(now_us)), &Some(at(start_us)..at(end_us)))?;
    // The first key is spent before the window, and the second one in it.
    for (key, at_us, cost, fits, until_us) in [
        ("before", start_us - 1, LIMIT, true, start_us),
        ("before", start_us, LIMIT, true, end_us),
        ("in", now_us, LIMIT, true, end_us),
        ("in", now_us, 1, false, end_us),
        ("in", end_us - 1, 1, false, end_us),
    ] {
        clock.set_us(at_us);
        let check = Check::new(format!("{}-{key}", id(case)), policy, cost);
        let verdict = match store.check(&check) {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => pending.await,
        };
        let outcome = verdict.map_err(|error| error.to_string())?.outcomes[0];
        let what = format!("cost {cost} at {at_us}");
        expect(&what, &(outcome.fits, outcome.reset_us), &(fits, until_us - at_us))?;
        expect(&what, &outcome.retry_after_us, &(!fits).then_some(until_us - at_us))?;
    }
    clock.set_us(end_us);
    let verdict = match store.check(&Check::new(format!("{}-in", id(case)), policy, LIMIT)) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => pending.await,
    };
    expect("at the end", &verdict.map_err(|error| error.to_string())?.allowed, &true)
}
