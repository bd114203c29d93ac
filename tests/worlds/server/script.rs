//! The Lua of the servers: their scripts, with `redis.call`, `redis.pcall` and `struct`.
//!
//! All servers of a thread share one interpreter, because starting it and compiling the script takes longer than some
//! worlds. A script has no memory of its own, as in Redis: each call gets its keys, and all that it keeps is in the
//! database of its server.

use std::collections::{BTreeMap, BTreeSet};
use std::{cell::RefCell, rc::Rc};

use mlua::state::{GcIncParams, GcMode};
use mlua::{Error, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Value};

use super::reply::{Bytes, Reply};
use super::{commands::Refusal, database::Database, pack};
use crate::rare;

/// What the commands of a script see.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pub(crate) database: Database,
    pub(crate) refusal: Option<Refusal>,
    has_written: bool,
    /// Whether the slot of the script's keys moves to another node: then a key that is missing is not created here.
    pub(super) gives_slot_away: bool,
    /// Whether a command of the script that runs was refused.
    was_refused: bool,
}

impl Data {
    /// A script begins.
    fn begin(&mut self) {
        (self.has_written, self.was_refused) = (false, false);
    }

    /// The first word of the errors that the last script has met.
    pub(super) fn refused(&self) -> Option<&'static str> {
        self.refusal.filter(|_| self.was_refused).map(Refusal::word)
    }

    pub(super) fn run(&mut self, command: &[Bytes]) -> Reply {
        if self.gives_slot_away && command.get(1).is_some_and(|key| !self.database.has(key)) {
            return Reply::error("ERR Script attempted to access a non local key in a cluster node");
        }
        let reply = self.database.run_unless_refused(command, self.refusal, &mut self.has_written);
        self.was_refused |= self.refusal.is_some() && matches!(reply, Reply::Error(_));
        rare::commanded(command, &reply);
        reply
    }
}

/// The scripts that a server has loaded, by SHA-1.
#[derive(Debug, Default)]
pub(super) struct Scripts(BTreeSet<String>);

impl Scripts {
    /// SCRIPT FLUSH.
    pub(super) fn flush(&mut self) {
        self.0.clear();
    }

    /// Loads a script and returns its SHA-1.
    pub(super) fn load(&mut self, code: &[u8]) -> String {
        let sha = INTERPRETER.with(|interpreter| interpreter.compile(code));
        self.0.insert(sha.clone());
        sha
    }

    /// Runs a loaded script on a server's data. `None` if it is not loaded.
    pub(super) fn run(
        &self,
        sha: &str,
        data: &Rc<RefCell<Data>>,
        keys: &[Bytes],
        arguments: &[Bytes],
    ) -> Option<Reply> {
        self.0.contains(sha).then(|| INTERPRETER.with(|interpreter| interpreter.run(sha, data, keys, arguments)))
    }
}

thread_local! {
    static INTERPRETER: Interpreter = Interpreter::new();
}

struct Interpreter {
    lua: Lua,
    /// The data of the server whose script runs.
    data: Rc<RefCell<Rc<RefCell<Data>>>>,
    compiled: RefCell<BTreeMap<String, Function>>,
    /// The script that was compiled last, and its SHA-1.
    last: RefCell<(Bytes, String)>,
}

/// How much the memory grows before garbage is collected, in percent.
const PAUSE: i32 = 1_000;

/// Raises the errors of commands as tables, like Redis 7.
const CALL: &str = "local pcall = redis.pcall
function redis.call(...)
  local reply = pcall(...)
  if type(reply) == 'table' and reply.err then error(reply) end
  return reply
end";

impl Interpreter {
    fn new() -> Self {
        let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new().catch_rust_panics(false));
        let lua = lua.expect("a new Lua has its libraries");
        // The interpreter has half a megabyte: it collects garbage after some thousand calls.
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(PAUSE)));
        let data = Rc::<RefCell<Rc<RefCell<Data>>>>::default();
        Self::add_libraries(&lua, &data).expect("the libraries are valid");
        Self { lua, data, compiled: RefCell::default(), last: RefCell::default() }
    }

    fn add_libraries(lua: &Lua, data: &Rc<RefCell<Rc<RefCell<Data>>>>) -> Result<()> {
        let redis = lua.create_table()?;
        let data = Rc::clone(data);
        let pcall = move |lua: &Lua, arguments: MultiValue| {
            let command = arguments.iter().map(argument).collect::<Result<Vec<_>>>()?;
            let reply = data.borrow().borrow_mut().run(&command);
            to_lua(lua, &reply)
        };
        redis.raw_set("pcall", lua.create_function(pcall)?)?;
        lua.globals().raw_set("redis", redis)?;
        lua.globals().raw_set("struct", pack::library(lua)?)?;
        lua.load(CALL).exec()
    }

    /// The SHA-1 of a script, which is compiled once.
    fn compile(&self, code: &[u8]) -> String {
        let mut last = self.last.borrow_mut();
        if last.0 != code {
            let sha = sha1_smol::Sha1::from(code).digest().to_string();
            let compile = || self.lua.load(code).set_name("@user_script").into_function().expect("the script compiles");
            self.compiled.borrow_mut().entry(sha.clone()).or_insert_with(compile);
            *last = (code.to_vec(), sha);
        }
        last.1.clone()
    }

    fn run(&self, sha: &str, data: &Rc<RefCell<Data>>, keys: &[Bytes], arguments: &[Bytes]) -> Reply {
        let function = self.compiled.borrow().get(sha).expect("a loaded script is compiled").clone();
        data.borrow_mut().begin();
        *self.data.borrow_mut() = Rc::clone(data);
        let run = || {
            for (name, texts) in [("KEYS", keys), ("ARGV", arguments)] {
                let texts = texts.iter().map(|text| self.lua.create_string(text)).collect::<Result<Vec<_>>>()?;
                self.lua.globals().raw_set(name, self.lua.create_sequence_from(texts)?)?;
            }
            from_lua(&function.call::<Value>(())?)
        };
        // Redis names the script and the line behind the message, which no client reads.
        let failed = |error: &Error| {
            let text = error.to_string();
            Reply::Error(format!("ERR {}", text.lines().next().unwrap_or_default()))
        };
        run().unwrap_or_else(|error| failed(&error))
    }
}

/// An argument of a command: Redis writes numbers with 17 digits.
fn argument(value: &Value) -> Result<Bytes> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) => Ok(format!("{number}").into_bytes()),
        _ => Err(Error::runtime("Lua redis lib command arguments must be strings or integers")),
    }
}

fn to_lua(lua: &Lua, reply: &Reply) -> Result<Value> {
    Ok(match reply {
        Reply::Integer(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Status(text) => Value::Table(lua.create_table_from([("ok", *text)])?),
        Reply::Error(text) => Value::Table(lua.create_table_from([("err", text.as_str())])?),
        Reply::List(replies) => {
            let items = replies.iter().map(|reply| to_lua(lua, reply)).collect::<Result<Vec<_>>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
    })
}

fn from_lua(value: &Value) -> Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        // As Redis does: the fraction is cut off.
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => match table.raw_get::<Option<String>>("err")? {
            Some(error) => Reply::Error(error),
            None => {
                let items = table.sequence_values::<Value>().map(|item| from_lua(&item?));
                Reply::List(items.collect::<Result<_>>()?)
            }
        },
        _ => Reply::Nil,
    })
}
