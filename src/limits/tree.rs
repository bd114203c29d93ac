//! A value of any serde format, kept as written: so that one pass can report every mistake.

use std::fmt;

use serde::de::{DeserializeSeed, EnumAccess, Error, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value as the file holds it. Maps keep their order and their duplicate keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Flag(bool),
    /// Numbers beyond the range of `i128` are kept as the nearest one.
    Integer(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Tree>),
    Table(Vec<(String, Tree)>),
    /// Without a value: `null` in JSON and YAML.
    Null,
    /// A value that no field takes: a date, bytes, or a tag with its content. The text names it.
    Other(&'static str),
}

/// Levels of tables and lists that are kept. The deepest field of the file is on level 4. Deeper values are skipped, so
/// that no file exhausts the stack.
const LEVELS: u32 = 8;

/// The key under which the toml crate passes a date.
const TOML_DATE: &str = "$__toml_private_datetime";

impl Tree {
    /// What the value is, with an article, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Fraction(_) => "a number with a fraction",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Null => "null",
            Self::Other(kind) => kind,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Level(LEVELS).deserialize(deserializer)
    }
}

/// Reads a value with at most this number of levels.
#[derive(Clone, Copy)]
struct Level(u32);

impl Level {
    fn below(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Flag(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Tree, E> {
        Ok(Tree::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Text(value))
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Other("a string of bytes"))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut values = Vec::new();
        if self.0 == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
        } else {
            while let Some(value) = list.next_element_seed(self.below())? {
                values.push(value);
            }
        }
        Ok(Tree::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        if self.0 == 0 {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        } else {
            while let Some(entry) = map.next_entry_seed(KeyText, self.below())? {
                entries.push(entry);
            }
        }
        let is_date = matches!(entries.as_slice(), [(key, _)] if key == TOML_DATE);
        Ok(if is_date { Tree::Other("a date") } else { Tree::Table(entries) })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Tree, A::Error> {
        let (_, content) = tagged.variant::<IgnoredAny>()?;
        content.newtype_variant::<IgnoredAny>()?;
        Ok(Tree::Other("a value with a tag"))
    }
}

/// Reads a key as text. YAML has keys of other types, such as the number 200.
struct KeyText;

impl<'de> DeserializeSeed<'de> for KeyText {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        match Level(0).deserialize(deserializer)? {
            Tree::Text(text) => Ok(text),
            Tree::Integer(number) => Ok(number.to_string()),
            Tree::Fraction(number) => Ok(number.to_string()),
            Tree::Flag(flag) => Ok(flag.to_string()),
            Tree::Null => Ok("null".to_owned()),
            key @ (Tree::List(_) | Tree::Table(_) | Tree::Other(_)) => {
                Err(D::Error::custom(format_args!("a key is a string, not {}", key.kind())))
            }
        }
    }
}
