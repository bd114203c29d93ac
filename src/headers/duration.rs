//! Field values that are one number, durations in whole seconds, the unit of most fields, and durations as text, as
//! OpenAI's API and Go write them.

use std::time::Duration;

use http::HeaderValue;

/// Writes a duration to the millisecond, rounded up: `6ms`, `1s`, `1.5s`,
/// `6m0s`, `1h2m3s`. Hours are the largest unit.
pub(super) fn duration(wait: Duration) -> HeaderValue {
    let millis = millis_up(wait);
    let text = if (1..1_000).contains(&millis) {
        format!("{millis}ms")
    } else {
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        let (seconds, rest) = (millis / 1_000 % 60, millis % 1_000);
        let mut text = match (hours, minutes) {
            (0, 0) => format!("{seconds}"),
            (0, _) => format!("{minutes}m{seconds}"),
            _ => format!("{hours}h{minutes}m{seconds}"),
        };
        if rest > 0 {
            let fraction = format!(".{rest:03}");
            text += fraction.trim_end_matches('0');
        }
        text + "s"
    };
    HeaderValue::try_from(text).expect("digits, letters and points are a header value")
}

/// Reads a duration in milliseconds; `None` if the value is missing or is no duration.
pub(super) fn read_duration(value: Option<&HeaderValue>) -> Option<u64> {
    let mut rest = value?.to_str().ok()?.trim();
    let mut millis = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit = after.find(|c: char| c.is_ascii_digit()).map_or(after, |end| &after[..end]);
        let length = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        millis += number.parse::<f64>().ok()? * length;
        rest = &after[unit.len()..];
    }
    Some(millis.round() as u64)
}

/// Formats a number. Allocates once, where `HeaderValue::from(u64)` allocates twice.
pub(super) fn number(number: u64) -> HeaderValue {
    HeaderValue::from_str(itoa::Buffer::new().format(number)).expect("digits are a header value")
}

/// Reads a number; `None` if the value is missing or is not a number.
pub(super) fn read_number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// Rounds up to whole seconds, so that a client that waits this long is not early.
pub(super) fn seconds_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

/// The longest wait of all fields, because many clients read the seconds of `Retry-After` as a signed 32-bit integer.
const LONGEST_SECONDS: u64 = 2_147_483_647;

/// Rounds up to the seconds of `Retry-After`: at least 1, because clients that read 0 repeat the request at once.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    seconds_up(wait).clamp(1, LONGEST_SECONDS)
}

/// Rounds up to milliseconds, at most those of the longest `Retry-After`.
pub(super) fn millis_up(wait: Duration) -> u64 {
    let longest = LONGEST_SECONDS * 1_000;
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).map_or(longest, |millis| millis.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_the_api_writes_them() {
        for (micros, text) in [
            (0, "0s"),
            (1, "1ms"),
            (6_000, "6ms"),
            (999_000, "999ms"),
            (999_001, "1s"),
            (1_000_000, "1s"),
            (1_000_001, "1.001s"),
            (8_640_000, "8.64s"),
            (59_999_001, "1m0s"),
            (72_345_000, "1m12.345s"),
            (360_000_000, "6m0s"),
            (3_600_000_000, "1h0m0s"),
            (3_723_000_000, "1h2m3s"),
            (86_400_000_000, "24h0m0s"),
        ] {
            let written = duration(Duration::from_micros(micros));
            assert_eq!(written, text);
            assert_eq!(read_duration(Some(&written)), Some(micros.div_ceil(1_000)), "{text}");
        }
        assert_eq!(duration(Duration::MAX), "596523h14m7s", "the longest wait of Retry-After");
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in ["", "5", "s", "-5s", "1d", "1.2.3s", "5s ago", "1h 2m", ".s", "NaNs", "1e3s", "5µs"] {
            assert_eq!(read_duration(HeaderValue::from_str(text).ok().as_ref()), None, "{text:?}");
        }
        assert_eq!(read_duration(None), None);
        assert_eq!(read_duration(Some(&HeaderValue::from_static("99999999999999999999999h"))), Some(u64::MAX));
    }
}
