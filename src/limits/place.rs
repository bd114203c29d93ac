//! Places in a file, as TOML writes them: `routes."/search".cost`.

use std::fmt::Write;

/// The place of a value. The file as a whole has an empty place.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Place(String);

impl Place {
    /// The place of the value under `key` in the table at this place.
    pub(super) fn at(&self, key: &str) -> Self {
        let mut place = self.0.clone();
        if !place.is_empty() {
            place.push('.');
        }
        push_key(&mut place, key);
        Self(place)
    }

    /// The place of a route in the table at this place. Routes are always in quotes, because a valid route needs them.
    pub(super) fn at_route(&self, route: &str) -> Self {
        let mut place = self.0.clone();
        place.push('.');
        push_quoted(&mut place, route);
        Self(place)
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Appends a key: bare where TOML allows it, otherwise as a basic string.
fn push_key(place: &mut String, key: &str) {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) {
        place.push_str(key);
    } else {
        push_quoted(place, key);
    }
}

/// Appends a key as a basic string.
fn push_quoted(place: &mut String, key: &str) {
    place.push('"');
    for character in key.chars() {
        match character {
            '"' | '\\' => place.extend(['\\', character]),
            '\n' => place.push_str("\\n"),
            '\t' => place.push_str("\\t"),
            '\r' => place.push_str("\\r"),
            control if control.is_control() => {
                // Writing to a `String` cannot fail.
                let _ = write!(place, "\\u{:04X}", u32::from(control));
            }
            other => place.push(other),
        }
    }
    place.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_quoted_as_toml_needs_it() {
        let cases = [
            ("search", "search"),
            ("per-client_2", "per-client_2"),
            ("", r#""""#),
            ("/search", r#""/search""#),
            ("a.b", r#""a.b""#),
            ("say \"hi\"\\", r#""say \"hi\"\\""#),
            ("a\nb\u{1}\u{7f}", r#""a\nb\u0001\u007F""#),
            ("café", r#""café""#),
        ];
        for (key, written) in cases {
            let place = Place::default().at("routes").at(key).at("cost").into_string();
            assert_eq!(place, format!("routes.{written}.cost"));
            let value: toml::Table = toml::from_str(&format!("{place} = 1")).unwrap();
            assert_eq!(value["routes"][key]["cost"].as_integer(), Some(1), "TOML reads {place} as the same place");
        }
    }
}
