//! Headers of arbitrary quotas are well-formed, contain the values of the quotas, and contradict neither each other nor
//! the policy. The independent crate `sfv` parses them.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::HeaderMap;
use proptest::{collection::vec, option, prelude::*};
use sfv::{BareItem, FieldType, Item, List, ListEntry, Parser};
use tollgate::HeaderStyle;
use tollgate::headers::{HeaderWriter, QuotaReport};

use crate::support::seed;

/// The values of a quota.
#[derive(Clone, Debug)]
struct QuotaValues {
    name: String,
    limit: u64,
    window: Option<Duration>,
    unit: Option<String>,
    partition_key: Option<Vec<u8>>,
    remaining: u64,
    next: Duration,
    wait: Duration,
    violated: bool,
}

/// Names include those that no policy accepts, because the encoder must be correct for all.
fn quota_values() -> impl Strategy<Value = QuotaValues> {
    let millis = |most: u64| (0..most).prop_map(Duration::from_millis);
    let names = ("[ -~]{1,20}", option::of("[ -~]{1,20}"), option::of(vec(any::<u8>(), 0..20)));
    let numbers = (1..100_000_u64, 0..=100_u64, option::of(millis(90_000_000)));
    (names, numbers, millis(90_000_000), millis(90_000_000), any::<bool>()).prop_map(
        |((name, unit, partition_key), (limit, percent, window), next, longer, violated)| {
            let (remaining, wait) = (limit * percent / 100, next + longer);
            QuotaValues { name, limit, window, unit, partition_key, remaining, next, wait, violated }
        },
    )
}

fn quota(given: &QuotaValues, allowed: bool) -> QuotaReport<'_> {
    let quota = QuotaReport::new(&given.name, given.limit, given.remaining)
        .with_window(given.window)
        .with_unit(given.unit.as_deref())
        .with_partition_key(given.partition_key.as_deref())
        .with_waits(given.next, given.wait);
    if !allowed && given.violated { quota.denied(given.wait) } else { quota }
}

fn written(writer: HeaderWriter, given: &[QuotaValues], allowed: bool) -> HeaderMap {
    let quotas: Vec<QuotaReport<'_>> = given.iter().map(|given| quota(given, allowed)).collect();
    let mut headers = HeaderMap::new();
    writer.write_quotas(&quotas, allowed, UNIX_EPOCH + Duration::from_secs(1_767_225_600)).apply(&mut headers);
    headers
}

/// The members of a List of Items. Asserts that the parser would serialise the list in the same way.
fn members(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let Some(text) = headers.get(name) else { return Vec::new() };
    let list: List = Parser::new(text).parse().unwrap();
    assert_eq!(list.serialize().unwrap(), text.to_str().unwrap());
    let item = |entry| match entry {
        ListEntry::Item(item) => item,
        ListEntry::InnerList(_) => panic!("an inner list"),
    };
    list.into_iter().map(item).collect()
}

fn integer(item: &Item, key: &str) -> Option<u64> {
    let value = item.params.get(sfv::KeyRef::from_str(key).unwrap())?;
    Some(value.as_integer().unwrap().try_into().unwrap())
}

fn is_named(item: &Item, name: &str) -> bool {
    matches!(&item.bare_item, BareItem::String(text) if text.as_str() == name)
}

proptest! {
    #![proptest_config(seed::cases(256))]

    #[test]
    fn draft_11_is_read_back_by_another_parser(
        given in vec(quota_values(), 1..4),
        allowed in any::<bool>(),
        jitter in 0..9_u32,
    ) {
        let writer = HeaderWriter::new(HeaderStyle::Draft11).with_jitter(Duration::from_secs(jitter.into()));
        let headers = written(writer, &given, allowed);
        let policies = members(&headers, "ratelimit-policy");
        prop_assert_eq!(policies.len(), given.len());
        for (item, given) in policies.iter().zip(&given) {
            prop_assert!(is_named(item, &given.name));
            prop_assert_eq!(integer(item, "q"), Some(given.limit));
            let window = given.window.map(|window| window.as_millis().div_ceil(1_000).max(1) as u64);
            prop_assert_eq!(integer(item, "w"), window);
            let unit = item.params.get(sfv::KeyRef::from_str("qu").unwrap()).and_then(|unit| unit.as_string());
            prop_assert_eq!(unit.map(|unit| unit.as_str()), given.unit.as_deref());
        }
        let retry_after = headers.get("retry-after").map(|wait| wait.to_str().unwrap().parse::<u64>().unwrap());
        let longest = given.iter().filter(|given| !allowed && given.violated).map(|given| given.wait).max();
        prop_assert_eq!(retry_after.is_some(), longest.is_some());
        let listed: Vec<&QuotaValues> = given.iter().filter(|given| allowed || given.violated).collect();
        let limits = members(&headers, "ratelimit");
        prop_assert_eq!(limits.len(), listed.len());
        for (item, given) in limits.iter().zip(listed) {
            prop_assert!(is_named(item, &given.name));
            prop_assert_eq!(integer(item, "r"), Some(given.remaining));
            let t = integer(item, "t").unwrap();
            let pk = item.params.get(sfv::KeyRef::from_str("pk").unwrap()).and_then(|key| key.as_byte_sequence());
            prop_assert_eq!(pk, given.partition_key.as_deref());
            match (retry_after, given.window) {
                // Retry-After is not before the reset that the header advertises.
                (Some(wait), _) => prop_assert!((1..=wait).contains(&t)),
                // The advertised rate is at most that of the policy: r / t <= q / w.
                (None, Some(window)) => prop_assert!(
                    u128::from(given.remaining) * window.as_millis() <= u128::from(given.limit) * u128::from(t) * 1_000
                ),
                (None, None) => prop_assert!(u128::from(t) * 1_000 >= given.next.as_millis()),
            }
        }
        if let (Some(wait), Some(longest)) = (retry_after, longest) {
            let true_wait = (longest.as_millis().div_ceil(1_000) as u64).max(1);
            prop_assert!((true_wait..=true_wait + u64::from(jitter)).contains(&wait));
        }
    }

    /// Integers have at most 15 digits, and Retry-After is at most `i32::MAX`.
    #[test]
    fn numbers_too_large_for_a_header_are_clamped(
        number in 1_000_000_000_000_000_u64..,
        seconds in 2_147_483_648_u64..,
    ) {
        let wait = Duration::from_secs(seconds);
        let huge = QuotaReport::new("huge", number, number).with_waits(wait, None).denied(wait);
        let mut headers = HeaderMap::new();
        let writer = HeaderWriter::new(HeaderStyle::Draft11).with_jitter(Duration::from_secs(9));
        let now = UNIX_EPOCH + Duration::from_micros(u64::MAX);
        writer.write_quotas(&[huge], false, now).apply(&mut headers);
        prop_assert_eq!(integer(&members(&headers, "ratelimit-policy")[0], "q"), Some(999_999_999_999_999));
        prop_assert_eq!(integer(&members(&headers, "ratelimit")[0], "r"), Some(999_999_999_999_999));
        prop_assert_eq!(integer(&members(&headers, "ratelimit")[0], "t"), Some(2_147_483_647));
        prop_assert_eq!(&headers["retry-after"], "2147483647");
        // The policies of the older drafts are Lists, and their other fields Items.
        for style in [HeaderStyle::Draft07, HeaderStyle::Draft06, HeaderStyle::Draft03] {
            let mut headers = HeaderMap::new();
            HeaderWriter::new(style).write_quotas(&[huge], false, now).apply(&mut headers);
            for name in ["ratelimit-limit", "ratelimit-remaining"] {
                let Some(text) = headers.get(name) else { continue };
                let list: Result<List, _> = Parser::new(text).parse();
                prop_assert!(list.is_ok(), "{style:?}, {name}: {text:?} is no Integer");
            }
        }
    }

    /// Draft 07 is a Dictionary. Its policies and those of draft 03 are a List of Integers.
    #[test]
    fn the_older_drafts_are_well_formed_too(given in vec(quota_values(), 1..4), allowed in any::<bool>()) {
        prop_assume!(allowed || given.iter().any(|given| given.violated));
        let headers = written(HeaderWriter::new(HeaderStyle::Draft07), &given, allowed);
        let dictionary: sfv::Dictionary = Parser::new(&headers["ratelimit"]).parse().unwrap();
        prop_assert_eq!(dictionary.serialize().unwrap(), headers["ratelimit"].to_str().unwrap());
        let policies = members(&headers, "ratelimit-policy");
        prop_assert!(policies.iter().all(|policy| policy.bare_item.as_integer().is_some()));
        let headers = written(HeaderWriter::new(HeaderStyle::Draft03), &given, allowed);
        prop_assert_eq!(&members(&headers, "ratelimit-limit")[1..], policies);
        let headers = written(HeaderWriter::new(HeaderStyle::EnvoyCompat), &given, allowed);
        prop_assert_eq!(members(&headers, "x-ratelimit-limit").len(), given.len() + 1);
    }
}
