//! The commands that the script and the client send, beside those of scripts and of clusters.

use super::database::{Database, Value};
use super::reply::{Bytes, Reply};
use super::sorted_set::{SortedSet, number_of, text_of};

/// Why a server refuses commands that write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The memory is full: commands that may add data fail, if the script has not written before.
    Full,
    Replica,
    TooFewReplicas,
}

impl Refusal {
    pub(super) fn word(self) -> &'static str {
        self.text().split(' ').next().unwrap_or_default()
    }

    fn text(self) -> &'static str {
        match self {
            Self::Full => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::Replica => "READONLY You can't write against a read only replica.",
            Self::TooFewReplicas => "NOREPLICAS Not enough good replicas to write.",
        }
    }
}

/// The name of a command in capitals.
pub(super) fn name_of(command: &[Bytes]) -> String {
    String::from_utf8_lossy(&command[0]).to_ascii_uppercase()
}

fn whole(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Database {
    /// Runs a command under a refusal of writes. `has_written` is the script's, and becomes true with its first write.
    pub(super) fn run_unless_refused(
        &mut self,
        command: &[Bytes],
        refusal: Option<Refusal>,
        has_written: &mut bool,
    ) -> Reply {
        let name = name_of(command);
        let adds = matches!(name.as_str(), "SETRANGE" | "ZADD" | "SET");
        let writes = adds || matches!(name.as_str(), "PEXPIRE" | "UNLINK" | "DEL" | "ZREM" | "ZREMRANGEBYSCORE");
        if let Some(refusal) = refusal
            && writes
            && (refusal != Refusal::Full || (adds && !*has_written))
        {
            return Reply::error(refusal.text());
        }
        *has_written = *has_written || writes;
        self.run(&name, &command[1..]).unwrap_or_else(|error| error)
    }

    fn run(&mut self, name: &str, arguments: &[Bytes]) -> Result<Reply, Reply> {
        let out_of_range = || Reply::error("ERR value is not an integer or out of range");
        let number = |index: usize| whole(&arguments[index]).ok_or_else(out_of_range);
        Ok(match name {
            "PING" => Reply::Status("PONG"),
            "TIME" => {
                let part = |number: i64| Reply::Bulk(number.to_string().into_bytes());
                Reply::List(vec![part(self.now_us / 1_000_000), part(self.now_us % 1_000_000)])
            }
            "GET" => self.text(&arguments[0])?.map_or(Reply::Nil, |text| Reply::Bulk(text.clone())),
            "STRLEN" => Reply::Integer(self.text(&arguments[0])?.map_or(0, |text| length(text))),
            "GETRANGE" => {
                let (first, last) = (number(1)?, number(2)?);
                Reply::Bulk(self.text(&arguments[0])?.map_or_else(Vec::new, |text| range(text, first, last)))
            }
            "SET" => {
                self.add(&arguments[0], Value::Text(arguments[1].clone()));
                Reply::Status("OK")
            }
            "SETRANGE" => self.set_range(&arguments[0], number(1)?, &arguments[2])?,
            "PEXPIRE" => {
                let expires_ms = self.now_ms() + number(1)?;
                match self.entry(&arguments[0]) {
                    None => Reply::Integer(0),
                    Some(entry) => {
                        entry.expires_ms = Some(expires_ms);
                        Reply::Integer(1)
                    }
                }
            }
            "PTTL" => {
                let now_ms = self.now_ms();
                let left = |entry: &mut super::database::Entry| entry.expires_ms.map_or(-1, |at| at - now_ms);
                Reply::Integer(self.entry(&arguments[0]).map_or(-2, left))
            }
            "UNLINK" | "DEL" => Reply::Integer(arguments.iter().map(|key| i64::from(self.remove(key))).sum()),
            "EXISTS" => Reply::Integer(arguments.iter().map(|key| i64::from(self.entry(key).is_some())).sum()),
            "ZCARD" => Reply::Integer(self.set(&arguments[0])?.map_or(0, |set| set.count())),
            "ZMSCORE" => {
                let set = self.set(&arguments[0])?;
                let score = |member: &Bytes| set.as_ref().and_then(|set| set.score(member));
                let reply = |score: Option<f64>| score.map_or(Reply::Nil, |score| Reply::Bulk(text_of(score)));
                Reply::List(arguments[1..].iter().map(|member| reply(score(member))).collect())
            }
            "ZSCORE" => {
                let score = self.set(&arguments[0])?.and_then(|set| set.score(&arguments[1]));
                score.map_or(Reply::Nil, |score| Reply::Bulk(text_of(score)))
            }
            "ZADD" => {
                if self.set(&arguments[0])?.is_none() {
                    self.add(&arguments[0], Value::Set(SortedSet::default()));
                }
                let set = self.set(&arguments[0])?.expect("the set is there now");
                let added = arguments[1..].chunks(2).map(|pair| i64::from(set.insert(&pair[1], number_of(&pair[0]))));
                Reply::Integer(added.sum())
            }
            "ZREMRANGEBYSCORE" => {
                let Some(set) = self.set(&arguments[0])? else { return Ok(Reply::Integer(0)) };
                let removed = set.remove_range(&arguments[1], &arguments[2]);
                if set.is_empty() {
                    self.remove(&arguments[0]);
                }
                Reply::Integer(removed)
            }
            "ZREM" => {
                let Some(set) = self.set(&arguments[0])? else { return Ok(Reply::Integer(0)) };
                let removed = arguments[1..].iter().map(|member| i64::from(set.remove(member))).sum();
                if set.is_empty() {
                    self.remove(&arguments[0]);
                }
                Reply::Integer(removed)
            }
            "ZRANGE" => match self.set(&arguments[0])? {
                Some(set) => set.range(&arguments[1..]),
                None => Reply::List(vec![]),
            },
            _ => panic!("the simulated server lacks {name}: add it to tests/worlds/server/commands.rs"),
        })
    }

    fn set_range(&mut self, key: &[u8], offset: i64, bytes: &[u8]) -> Result<Reply, Reply> {
        let start = usize::try_from(offset).map_err(|_| Reply::error("ERR offset is out of range"))?;
        if bytes.is_empty() {
            return Ok(Reply::Integer(self.text(key)?.map_or(0, |text| length(text))));
        }
        if self.text(key)?.is_none() {
            self.add(key, Value::Text(Vec::new()));
        }
        let text = self.text(key)?.expect("the text is there now");
        let end = start + bytes.len();
        if text.len() < end {
            text.resize(end, 0);
        }
        text[start..end].copy_from_slice(bytes);
        Ok(Reply::Integer(length(text)))
    }
}

fn length(text: &[u8]) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

/// GETRANGE: both ends are part of the range, and negative ones count from the end.
fn range(text: &[u8], first: i64, last: i64) -> Bytes {
    let length = length(text);
    if first < 0 && last < 0 && first > last {
        return vec![];
    }
    let from_end = |index: i64| if index < 0 { (length + index).max(0) } else { index };
    let (first, last) = (from_end(first), from_end(last).min(length - 1));
    match (usize::try_from(first), usize::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => text[first..=last].to_vec(),
        _ => vec![],
    }
}
