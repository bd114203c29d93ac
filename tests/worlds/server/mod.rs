//! Simulated servers: they run the real script, and answer as Redis does, also in trouble.

pub(crate) mod cluster;
pub(crate) mod commands;
pub(crate) mod database;
pub(crate) mod done;
mod pack;
pub(crate) mod reply;
mod script;
pub(crate) mod sentinel;
mod sorted_set;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use self::cluster::{Routed, Slots};
use self::reply::{Bytes, Reply};
use self::script::{Data, Scripts};
use self::{commands::name_of, done::Before, sentinel::Role};
use crate::rare;

/// Why a server answers commands with an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Trouble {
    Loading,
    Busy,
    /// Commands need a login that clients do not have.
    NoLogin,
    /// Logins are refused.
    WrongLogin,
    /// The user may not run scripts.
    NoPermission,
}

impl Trouble {
    fn text(self) -> &'static str {
        match self {
            Self::Loading => "LOADING Redis is loading the dataset in memory",
            Self::Busy => "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            Self::NoLogin => "NOAUTH Authentication required.",
            Self::WrongLogin => "WRONGPASS invalid username-password pair or user is disabled.",
            Self::NoPermission => "NOPERM User default has no permissions to run the 'evalsha' command",
        }
    }

    fn concerns(self, name: &str) -> bool {
        match self {
            Self::Loading | Self::Busy => !matches!(name, "HELLO" | "CLIENT"),
            Self::NoLogin => true,
            Self::WrongLogin => matches!(name, "HELLO" | "AUTH"),
            Self::NoPermission => matches!(name, "EVAL" | "EVALSHA"),
        }
    }
}

/// One server.
pub(crate) struct Server {
    number: usize,
    data: Rc<RefCell<Data>>,
    scripts: Scripts,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) role: Role,
    /// The world's time of the last command, and what the clock showed then.
    last_us: (i64, i64),
    /// The number of answers by the first word of an error; `OK` for calls of the script that ran.
    pub(crate) answers: BTreeMap<String, u64>,
}

/// What a server knows about a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    /// ASKING was the last command.
    is_asking: bool,
}

impl Server {
    pub(crate) fn new(number: usize) -> Self {
        let (data, scripts) = (Rc::default(), Scripts::default());
        Self { number, data, scripts, trouble: None, role: Role::default(), last_us: (0, 0), answers: BTreeMap::new() }
    }

    pub(crate) fn with_data<T>(&self, work: impl FnOnce(&mut Data) -> T) -> T {
        work(&mut self.data.borrow_mut())
    }

    pub(crate) fn set_role(&mut self, role: Role) {
        self.role = role;
        self.end_refusal();
    }

    /// Nothing is wrong any more. A replica still refuses to write.
    pub(crate) fn end_refusal(&mut self) {
        self.with_data(|data| data.refusal = self.role.refusal());
    }

    pub(crate) fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// Answers a command at a time of the server's clock.
    pub(crate) fn answer(
        &mut self,
        command: &[Bytes],
        session: &mut Session,
        slots: Option<&Slots>,
        now_us: i64,
    ) -> Reply {
        let now_us = self.clock_us(now_us);
        self.with_data(|data| data.database.now_us = now_us);
        let reply = self.answer_now(command, session, slots);
        let word = match &reply {
            Reply::Error(text) => text.split(' ').next().unwrap_or_default(),
            _ if name_of(command).starts_with("EVAL") => self.data.borrow().refused().unwrap_or("OK"),
            _ => return reply,
        };
        *self.answers.entry(word.to_owned()).or_default() += 1;
        reply
    }

    /// The world moves in milliseconds. Each command takes a microsecond more.
    fn clock_us(&mut self, now_us: i64) -> i64 {
        let (last_us, shown_us) = self.last_us;
        let shown_us = if now_us == last_us { shown_us + 1 } else { now_us };
        self.last_us = (now_us, shown_us);
        shown_us
    }

    fn answer_now(&mut self, command: &[Bytes], session: &mut Session, slots: Option<&Slots>) -> Reply {
        let name = name_of(command);
        let was_asking = std::mem::take(&mut session.is_asking);
        if let Some(trouble) = self.trouble
            && trouble.concerns(&name)
        {
            return Reply::error(trouble.text());
        }
        match name.as_str() {
            "HELLO" => {
                let bulk = |text: &str| Reply::Bulk(text.into());
                Reply::List(vec![bulk("server"), bulk("redis"), bulk("proto"), Reply::Integer(3)])
            }
            "AUTH" | "CLIENT" | "READONLY" => Reply::Status("OK"),
            "ASKING" => {
                session.is_asking = true;
                Reply::Status("OK")
            }
            "INFO" => Reply::Bulk(b"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_vec()),
            "SCRIPT" => Reply::Bulk(self.scripts.load(&command[2]).into_bytes()),
            "ROLE" => self.role.reply(),
            "SENTINEL" => self.role.master_address(),
            "CLUSTER" => match slots {
                Some(slots) => slots.reply(),
                None => Reply::error("ERR This instance has cluster support disabled"),
            },
            "EVAL" | "EVALSHA" => self.evaluate(&name, command, was_asking, slots),
            "UNLINK" => match self.route(&command[1..], was_asking, slots) {
                Routed::Elsewhere(reply) => reply,
                Routed::Here => self.data.borrow_mut().run(command),
            },
            _ => self.data.borrow_mut().run(command),
        }
    }

    /// Where a command with these keys belongs: here, if the server is in no cluster.
    fn route(&self, keys: &[Bytes], is_asking: bool, slots: Option<&Slots>) -> Routed {
        let has = |key: &[u8]| self.data.borrow_mut().database.has(key);
        slots.map_or(Routed::Here, |slots| slots.route(self.number, keys, is_asking, has))
    }

    fn evaluate(&mut self, name: &str, command: &[Bytes], is_asking: bool, slots: Option<&Slots>) -> Reply {
        let count: usize = String::from_utf8_lossy(&command[2]).parse().expect("the number of keys is a number");
        let (keys, arguments) = command[3..].split_at(count);
        // The script that counts instances is always sent whole.
        if !keys.iter().any(|key| key.ends_with(b"instances")) {
            rare::called(name == "EVAL", keys, arguments);
        }
        if let Routed::Elsewhere(reply) = self.route(keys, is_asking, slots) {
            return reply;
        }
        let sha = match name {
            "EVAL" => self.scripts.load(&command[1]),
            _ => String::from_utf8_lossy(&command[1]).into_owned(),
        };
        let missing = || Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        self.data.borrow_mut().gives_slot_away = slots.is_some_and(|slots| slots.are_given_away(self.number, keys));
        let before = self.with_data(|data| Before::of(keys, &mut data.database));
        let reply = self.scripts.run(&sha, &self.data, keys, arguments).inspect(|_| {
            self.with_data(|data| before.ran(self.number, &mut data.database));
        });
        let reply = reply.unwrap_or_else(missing);
        self.data.borrow_mut().gives_slot_away = false;
        reply
    }
}
