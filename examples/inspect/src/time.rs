//! Times as the program prints them.

use std::time::Duration;

const DAY: u64 = 86_400;
const HOUR: u64 = 3_600;
const MINUTE: u64 = 60;

/// A length of time in its longest unit without a rest, such as a window: `90s`, `1m`, `500ms`.
pub(crate) fn exact(time: Duration) -> String {
    const UNITS: [(u128, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let micros = time.as_micros();
    let (length, unit) = UNITS.into_iter().find(|(length, _)| micros.is_multiple_of(*length)).unwrap_or((1, "us"));
    format!("{}{unit}", micros / length)
}

/// A wait, rounded up to tenths of a second below a minute and to seconds above: `12.3s`, `9m58s`, `3h5m`, `6d23h`.
pub(crate) fn rounded(wait: Duration) -> String {
    let tenths = wait.as_micros().div_ceil(100_000);
    if tenths < 600 {
        return format!("{}.{}s", tenths / 10, tenths % 10);
    }
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    match seconds {
        0..HOUR => format!("{}m{}s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{}h{}m", seconds / HOUR, seconds % HOUR / MINUTE),
        _ => format!("{}d{}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// A wait as [`rounded`] writes it, or a dash if there is nothing to wait for.
pub(crate) fn or_dash(wait: Duration) -> String {
    if wait.is_zero() { "-".to_owned() } else { rounded(wait) }
}

/// Parses a time in the words of a limits file: `500ms`, `90s`, `10m`, `2h` or `1d`; `None` if the text is no time, is
/// zero, or is too long for the milliseconds of a `u64`.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit_at].parse().ok()?;
    let millis = match &text[unit_at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(millis).filter(|millis| *millis > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_exact_and_waits_are_rounded_up() {
        for (millis, as_window, as_wait) in [
            (500, "500ms", "0.5s"),
            (1, "1ms", "0.1s"),
            (59_950, "59950ms", "1m0s"),
            (59_850, "59850ms", "59.9s"),
            (60_000, "1m", "1m0s"),
            (90_000, "90s", "1m30s"),
            (598_001, "598001ms", "9m59s"),
            (3_599_001, "3599001ms", "1h0m"),
            (86_400_000, "1d", "1d0h"),
        ] {
            let time = Duration::from_millis(millis);
            assert_eq!((exact(time).as_str(), rounded(time).as_str()), (as_window, as_wait));
        }
    }

    #[test]
    fn times_have_the_words_of_a_limits_file() {
        for (text, millis) in
            [("500ms", 500), ("90s", 90_000), ("10m", 600_000), ("2h", 7_200_000), ("366d", 31_622_400_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "0s", "-5s", "+5s", "1.5s", "5 s", "5min", "1h30m", "99999999999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
