//! Reads `metadata`: any map, which a response has as dynamic metadata.

use std::collections::HashMap;

use envoy_types::pb::google::protobuf::{ListValue, NullValue, Struct, Value as Field, value::Kind};

use super::{
    mistake::Mistakes,
    yaml::{Node, Value},
};

pub(super) fn read(node: &Node, mistakes: &mut Mistakes) -> Option<Struct> {
    match value(node, mistakes).kind {
        Some(Kind::StructValue(map)) => Some(map),
        _ => {
            mistakes.add(node.place, format!("metadata is {}; write a map", node.kind()));
            None
        }
    }
}

fn value(node: &Node, mistakes: &mut Mistakes) -> Field {
    let kind = match &node.value {
        Value::Scalar { .. } if node.is_null() => Kind::NullValue(NullValue::NullValue.into()),
        Value::Scalar { text, is_plain } => match (node.truth(), text.parse::<f64>()) {
            (Some(truth), _) => Kind::BoolValue(truth),
            (None, Ok(number)) if *is_plain && number.is_finite() => Kind::NumberValue(number),
            _ => Kind::StringValue(text.clone()),
        },
        Value::List(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(|item| value(item, mistakes)).collect() })
        }
        Value::Map(map) => {
            let mut fields = HashMap::new();
            for (key, node) in map {
                let field = value(node, mistakes);
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
