//! Values that the script may meet in Redis: its own ones, its own ones with changes, and those of other programs.

use tollgate::redis::{self, Pipeline};

use super::random::Random;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Absent,
    Text(Vec<u8>),
    Sorted(Vec<(Vec<u8>, f64)>),
    /// A list, a set or a hash.
    Other(u64),
}

impl Value {
    /// Whether this is a ban that any check may change: it ends about now, or its clock was set back.
    pub(super) fn is_a_ban_that_changes(&self, now_us: u64) -> bool {
        let Self::Text(text) = self else { return false };
        if !text.starts_with(BAN_MARK) || text.len() < 32 {
            return false;
        }
        let field = |at: usize| f64::from_le_bytes(text[at..at + 8].try_into().unwrap());
        let (ends, duration, now) = (field(8), field(24), now_us as f64);
        ends <= now + 10e6 || ends >= now + duration - 10e6
    }

    /// Adds the commands that write the value.
    pub(super) fn write(&self, pipeline: &mut Pipeline, key: &str) {
        pipeline.del(key).ignore();
        match self {
            Self::Absent => {}
            Self::Text(text) => {
                pipeline.cmd("SET").arg(key).arg(text).arg("PX").arg(60_000_000).ignore();
            }
            Self::Sorted(members) => {
                for (member, score) in members {
                    pipeline.cmd("ZADD").arg(key).arg(score_text(*score)).arg(member).ignore();
                }
            }
            Self::Other(0) => drop(pipeline.cmd("RPUSH").arg(key).arg("x").ignore()),
            Self::Other(1) => drop(pipeline.cmd("SADD").arg(key).arg("x").ignore()),
            Self::Other(_) => drop(pipeline.cmd("HSET").arg(key).arg("s").arg("-5").ignore()),
        }
    }
}

/// The first bytes of a key that is banned by hand.
const BAN_MARK: &[u8] = b"\0\0\0Ban\xf8\xff";

/// A score as Redis reads it.
fn score_text(score: f64) -> String {
    match score {
        f64::INFINITY => "+inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        // Redis has no such score.
        nan if nan.is_nan() => "0".to_owned(),
        score => format!("{score:?}"),
    }
}

/// Numbers at the bounds of what the algorithms write, and beyond.
pub(super) fn double(random: &mut Random, now_us: u64) -> f64 {
    let powers = [0, 1, 8, 22, 31, 32, 40, 47, 48, 50, 51, 52, 53, 54, 62, 63, 64, 80, 1_000];
    let power = 2_f64.powi(random.one_of(&powers));
    let near = now_us as f64 + random.one_of(&[0.0, 0.5, 1.0, -1.0, 1e3, -1e3, 1e6, -1e6, 60e6, -60e6, 86_400e6]);
    let special = [
        0.0,
        -0.0,
        -1.0,
        0.25,
        0.5,
        0.75,
        -0.5,
        5e-324,
        f64::MAX,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        // Times 2^60: the product with an infinite count is no longer a number.
        60e6 * 2_f64.powi(60),
    ];
    match random.below(6) {
        0 => power,
        1 => power + random.one_of(&[1.0, -1.0, 0.5]),
        2 => -power,
        3 => near,
        4 => f64::from_bits(random.bits()),
        _ => random.one_of(&special),
    }
}

/// A value for a count, made from a value that the script has written.
pub(super) fn text(random: &mut Random, written: &[u8], now_us: u64) -> Value {
    let mut text = written.to_vec();
    match random.below(12) {
        0 => return Value::Other(random.below(3)),
        1 => return sorted(random, &head(-3.0), now_us),
        2 => {
            let length =
                random.one_of(&[0, 1, 8, 31, 32, 33, 40, 41, 43, 44, 45, 63, 106, 107, 108, 183, 184, 197, 198, 400]);
            text = (0..length).map(|_| random.below(256) as u8).collect();
        }
        3 => text = b"{\"user\": 17, \"since\": \"2026-01-01T00:00:00Z\"} ".repeat(random.below(6) as usize),
        4 => {
            // Also to the length of another count, or of its ban.
            let any = random.below(text.len() as u64 + 1) as usize;
            text.truncate(random.one_of(&[any, any, 32, 40, 44, 64, 72, 76, 106, 107, 183, 184, 186]));
        }
        5 => text.extend((0..random.below(200)).map(|_| 0xff)),
        6 | 7 => {
            for _ in 0..=random.below(8) {
                let bit = random.below(8 * text.len().max(1) as u64);
                if let Some(byte) = text.get_mut((bit / 8) as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        _ => {
            for _ in 0..=random.below(3) {
                // The fields of logs and buckets start at these bytes, those of the other algorithms at multiples of 8.
                let of_logs = [0, 44, 47, 52, 57, 62, 68, 74, 80, 88, 96, 102, 107, 184, 192, 198];
                let at = match random.below(2) {
                    0 => random.one_of(&of_logs),
                    _ => random.one_of(&[0, 8, 14, 16, 20, 24, 28, 32, 36]),
                };
                let field = match random.below(3) {
                    0 => random.one_of(&[0_u64, 1, 2, 255, u64::MAX, u64::MAX >> 1]).to_le_bytes(),
                    _ => double(random, now_us).to_le_bytes(),
                };
                let width = random.one_of(&[3, 5, 6, 8, 8, 8]);
                for (byte, new) in text.iter_mut().skip(at).zip(&field[..width]) {
                    *byte = *new;
                }
            }
        }
    }
    Value::Text(text)
}

/// The length of the name of the first member of open holds, which `lua/holds.lua` describes.
const HEAD_BYTES: usize = 25;

/// The first member of open holds with this score, and no other member.
pub(super) fn head(score: f64) -> Vec<(Vec<u8>, f64)> {
    let mut name = vec![0; HEAD_BYTES];
    name[0] = b't';
    vec![(name, score)]
}

/// A value for open holds, made from one that the script has written.
pub(super) fn sorted(random: &mut Random, written: &[(Vec<u8>, f64)], now_us: u64) -> Value {
    let mut members = written.to_vec();
    match random.below(8) {
        0 => return Value::Other(random.below(3)),
        1 => return Value::Text(b"text".to_vec()),
        2 if !members.is_empty() => drop(members.swap_remove(random.below(members.len() as u64) as usize)),
        3 => {
            for _ in 0..random.below(100) {
                members.push((random.bits().to_le_bytes().to_vec(), double(random, now_us)));
            }
        }
        4 => {
            // The times in the name of the head, behind a letter.
            if let Some((head, _)) = members.iter_mut().find(|(name, _)| name.len() == HEAD_BYTES) {
                let at = 1 + 8 * random.below(3) as usize;
                head[at..at + 8].copy_from_slice(&double(random, now_us).to_le_bytes());
            }
        }
        _ => {
            for _ in 0..=random.below(2) {
                if !members.is_empty() {
                    let index = random.below(members.len() as u64) as usize;
                    members[index].1 = double(random, now_us);
                }
            }
        }
    }
    Value::Sorted(members)
}

/// Reads the value of a key that the script has written.
pub(super) fn written(connection: &mut redis::Connection, key: &str, is_sorted: bool) -> Value {
    if is_sorted {
        let members: Vec<(Vec<u8>, f64)> =
            redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").query(connection).unwrap();
        return if members.is_empty() { Value::Absent } else { Value::Sorted(members) };
    }
    let text: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection).unwrap();
    text.map_or(Value::Absent, Value::Text)
}
