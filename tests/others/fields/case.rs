//! A case: quotas, and the fields that each style sends for them.

use std::{collections::BTreeMap, time::Duration};

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};
use tollgate::{HeaderStyle, headers::HeaderWriter};

/// The values of a quota, as they go in.
pub(crate) struct Quota {
    pub(crate) name: String,
    pub(crate) limit: u64,
    pub(crate) capacity: u64,
    pub(crate) window: Option<Duration>,
    pub(crate) unit: Option<String>,
    pub(crate) partition_key: Option<Vec<u8>>,
    pub(crate) remaining: u64,
    pub(crate) next: Option<Duration>,
    pub(crate) reset: Option<Duration>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) violated: bool,
}

/// What a case has beside its quotas.
pub(crate) struct Situation {
    pub(crate) id: String,
    pub(crate) allowed: bool,
    pub(crate) now_us: u64,
    pub(crate) capped_ratio: bool,
    pub(crate) all_on_denial: bool,
}

/// Styles whose fields are Structured Fields or numbers.
const STYLES: [&str; 8] =
    ["draft-11", "draft-07", "draft-06", "draft-03", "x-ratelimit", "x-ratelimit-epoch", "envoy", "tower-governor"];

/// The case as a line of JSON. `write` writes the fields of a style.
pub(crate) fn line(situation: &Situation, quotas: &[Quota], write: impl Fn(HeaderWriter, &mut HeaderMap)) -> Value {
    let mut styles = Map::new();
    for name in STYLES {
        let style: HeaderStyle = name.parse().expect("the list has the names of styles");
        let writer = HeaderWriter::new(style)
            .with_capped_ratio(situation.capped_ratio)
            .with_all_policies_on_denial(situation.all_on_denial);
        let mut headers = HeaderMap::new();
        write(writer, &mut headers);
        styles.insert(name.to_owned(), lines(&headers).into());
    }
    json!({
        "id": situation.id,
        "allowed": situation.allowed,
        "now_us": situation.now_us,
        "capped_ratio": situation.capped_ratio,
        "all_on_denial": situation.all_on_denial,
        "quotas": quotas.iter().map(value).collect::<Vec<Value>>(),
        "styles": styles,
    })
}

/// The lines of each field.
fn lines(headers: &HeaderMap) -> Map<String, Value> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        fields.entry(name.to_string()).or_default().push(String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    fields.into_iter().map(|(name, lines)| (name, lines.into())).collect()
}

fn value(quota: &Quota) -> Value {
    let micros = |time: Option<Duration>| time.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    json!({
        "name": quota.name,
        "limit": quota.limit,
        "capacity": quota.capacity,
        "window_us": micros(quota.window),
        "unit": quota.unit,
        "partition_key": quota.partition_key.as_ref().map(hex),
        "remaining": quota.remaining,
        "next_us": micros(quota.next),
        "reset_us": micros(quota.reset),
        "retry_after_us": micros(quota.retry_after),
        "violated": quota.violated,
    })
}
