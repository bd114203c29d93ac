//! The library `struct` of Redis, for the formats that the script uses.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value, Variadic};

/// The table `struct` with `pack` and `unpack`.
pub(super) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(|lua, arguments: MultiValue| pack(lua, &arguments))?)?;
    library.raw_set("unpack", lua.create_function(|lua, arguments: MultiValue| unpack(lua, &arguments))?)?;
    Ok(library)
}

/// The fields of a format, such as `<HBI4c0d`: a letter and a size.
fn fields(format: &LuaString) -> Vec<(u8, Option<usize>)> {
    let mut fields: Vec<(u8, Option<usize>)> = vec![];
    for byte in format.as_bytes().iter().copied().filter(|byte| *byte != b'<') {
        match (byte, fields.last_mut()) {
            (b'0'..=b'9', Some((_, size))) => *size = Some(size.unwrap_or(0) * 10 + usize::from(byte - b'0')),
            _ => fields.push((byte, None)),
        }
    }
    fields
}

/// The bytes of a number, or `None` for a text of any length.
fn size_of((letter, size): (u8, Option<usize>)) -> usize {
    match letter {
        b'd' => 8,
        b'B' | b'b' => 1,
        b'H' | b'h' => 2,
        b'I' | b'i' => size.unwrap_or(4),
        b'c' => size.unwrap_or(1),
        _ => panic!("the simulated server lacks the format {}", char::from(letter)),
    }
}

fn text(arguments: &MultiValue, index: usize) -> Result<&LuaString> {
    match arguments.get(index) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(bad_argument(index, "string expected")),
    }
}

fn number(arguments: &MultiValue, index: usize) -> Result<f64> {
    match arguments.get(index) {
        Some(Value::Number(number)) => Ok(*number),
        Some(Value::Integer(number)) => Ok(*number as f64),
        Some(Value::String(text)) => {
            text.to_string_lossy().trim().parse().map_err(|_| bad_argument(index, "number expected"))
        }
        _ => Err(bad_argument(index, "number expected")),
    }
}

fn bad_argument(index: usize, why: &str) -> Error {
    Error::runtime(format!("bad argument #{} ({why})", index + 1))
}

fn pack(lua: &Lua, arguments: &MultiValue) -> Result<LuaString> {
    let (mut packed, mut next) = (Vec::new(), 1);
    for field in fields(text(arguments, 0)?) {
        let size = size_of(field);
        match field.0 {
            b'd' => packed.extend(number(arguments, next)?.to_le_bytes()),
            b'c' => {
                let bytes = text(arguments, next)?.as_bytes();
                let size = if size == 0 { bytes.len() } else { size };
                packed.extend(bytes.get(..size).ok_or_else(|| bad_argument(next, "string too short"))?);
            }
            _ => {
                let number = number(arguments, next)?;
                // As C converts: negative numbers wrap around.
                let bits = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                packed.extend(&bits.to_le_bytes()[..size]);
            }
        }
        next += 1;
    }
    lua.create_string(packed)
}

fn unpack(lua: &Lua, arguments: &MultiValue) -> Result<Variadic<Value>> {
    let bytes = text(arguments, 1)?.as_bytes().to_vec();
    let mut position = if arguments.len() > 2 { number(arguments, 2)? as usize - 1 } else { 0 };
    let mut found: Vec<Value> = vec![];
    for field in fields(text(arguments, 0)?) {
        let mut size = size_of(field);
        if field == (b'c', Some(0)) {
            // The length is the number before.
            size = match found.pop() {
                Some(Value::Number(length)) => length as usize,
                _ => return Err(Error::runtime("format `c0' needs a previous size")),
            };
        }
        let end = position.saturating_add(size);
        let field_bytes = bytes.get(position..end).ok_or_else(|| bad_argument(1, "data string too short"))?;
        found.push(match field.0 {
            b'c' => Value::String(lua.create_string(field_bytes)?),
            letter => {
                let mut word = [0; 8];
                word[..size].copy_from_slice(field_bytes);
                match letter {
                    b'd' => Value::Number(f64::from_le_bytes(word)),
                    _ => Value::Number(u64::from_le_bytes(word) as f64),
                }
            }
        });
        position = end;
    }
    found.push(Value::Number((position + 1) as f64));
    Ok(found.into_iter().collect())
}
