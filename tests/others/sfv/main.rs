//! Fields by sfv: `tollgate-others-sfv < cases`, where `expected` has added the values.

use std::error::Error;
use std::io::{self, BufRead};

use serde_json::{Value, json};
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parameters, Parser};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut count, mut faults) = (0_u64, 0_u64);
    for line in io::stdin().lock().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        for (style, fields) in case["styles"].as_object().into_iter().flatten() {
            for (name, lines) in fields.as_object().into_iter().flatten() {
                let text: Vec<&str> = lines.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let (text, expected) = (text.join(", "), &case["expected"][style][name]);
                if !expected["digits"].is_null() {
                    continue;
                }
                count += 1;
                let fault = match read(expected, &text) {
                    Ok((parsed, written)) if parsed == *expected && written.as_ref() == Some(&text) => continue,
                    Ok((parsed, written)) => format!("parsed {parsed}, written {written:?}, expected {expected}"),
                    Err(error) => error.to_string(),
                };
                faults += 1;
                if faults <= 20 {
                    eprintln!("{}, {style}: {name}: {text}: {fault}", case["id"]);
                }
            }
        }
    }
    println!("sfv: {count} fields");
    if faults > 0 || count == 0 { Err(format!("{faults} faults").into()) } else { Ok(()) }
}

/// What sfv makes of a field of this kind, and what it would write for it.
fn read(kind: &Value, text: &str) -> Result<(Value, Option<String>), Box<dyn Error>> {
    let parser = Parser::new(text);
    if !kind["list"].is_null() {
        let list: List = parser.parse()?;
        let written = list.serialize();
        return Ok((json!({ "list": list.iter().map(entry).collect::<Vec<Value>>() }), written));
    }
    if !kind["dictionary"].is_null() {
        let members: Dictionary = parser.parse()?;
        let values: Vec<Value> = members.iter().map(|(key, member)| json!([key.as_str(), entry(member)])).collect();
        return Ok((json!({ "dictionary": values }), members.serialize()));
    }
    let single: Item = parser.parse()?;
    Ok((json!({ "item": item(&single) }), Some(single.serialize())))
}

fn entry(entry: &ListEntry) -> Value {
    match entry {
        ListEntry::Item(member) => item(member),
        ListEntry::InnerList(_) => json!("an inner list, which no field has"),
    }
}

fn item(item: &Item) -> Value {
    json!([typed(&item.bare_item), parameters(&item.params)])
}

fn parameters(parameters: &Parameters) -> Vec<Value> {
    parameters.iter().map(|(key, value)| json!([key.as_str(), typed(value)])).collect()
}

fn typed(value: &BareItem) -> Value {
    match value {
        BareItem::Boolean(value) => json!({ "boolean": value }),
        BareItem::Integer(value) => json!({ "integer": i64::from(*value) }),
        BareItem::String(value) => json!({ "string": value.as_str() }),
        BareItem::Token(value) => json!({ "token": value.as_str() }),
        BareItem::ByteSequence(value) => {
            json!({ "bytes": value.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
        other => json!(format!("{other:?}, which no field has")),
    }
}
