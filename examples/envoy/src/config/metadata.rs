//! Reads `metadata`: any map, which a response has as dynamic metadata.

use std::collections::HashMap;

use envoy_types::pb::google::protobuf::{ListValue, NullValue, Struct, Value as Field, value::Kind};

use super::mistake::Mistakes;
use super::yaml::{Node, Value};

/// The most values of one map: aliases of aliases can stand for more than memory has.
const MOST: usize = 10_000;

pub(super) fn read(node: &Node, mistakes: &mut Mistakes) -> Option<Struct> {
    let mut left = MOST;
    let read = value(node, &mut left, mistakes);
    if left == 0 {
        mistakes.add(node.place, format!("metadata has {MOST} values or more; write fewer"));
        return None;
    }
    match read.kind {
        Some(Kind::StructValue(map)) => Some(map),
        _ => {
            mistakes.add(node.place, format!("metadata is {}; write a map", node.kind()));
            None
        }
    }
}

fn value(node: &Node, left: &mut usize, mistakes: &mut Mistakes) -> Field {
    *left = left.saturating_sub(1);
    let kind = match &node.value {
        _ if *left == 0 => Kind::NullValue(NullValue::NullValue.into()),
        Value::Scalar { .. } if node.is_null() => Kind::NullValue(NullValue::NullValue.into()),
        Value::Scalar { text, is_plain } => match (node.truth(), text.parse::<f64>()) {
            (Some(truth), _) => Kind::BoolValue(truth),
            (None, Ok(number)) if *is_plain && number.is_finite() => Kind::NumberValue(number),
            _ => Kind::StringValue(text.clone()),
        },
        Value::List(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(|item| value(item, left, mistakes)).collect() })
        }
        Value::Map(map) => {
            let mut fields = HashMap::new();
            for (key, node) in map {
                let field = value(node, left, mistakes);
                match key.text() {
                    Some(name) if !fields.contains_key(name) => drop(fields.insert(name.to_owned(), field)),
                    Some(name) => mistakes.add(key.place, format!("{name} is here twice")),
                    None => mistakes.add(key.place, format!("a key is {}; write text", key.kind())),
                }
            }
            Kind::StructValue(Struct { fields })
        }
    };
    Field { kind: Some(kind) }
}
