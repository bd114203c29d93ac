//! Replies of a server, and the protocol.

/// Bytes of keys, values and arguments.
pub(crate) type Bytes = Vec<u8>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Integer(i64),
    Bulk(Bytes),
    Nil,
    Status(&'static str),
    /// The text behind the `-`.
    Error(String),
    List(Vec<Reply>),
}

impl Reply {
    pub(crate) fn error(text: &str) -> Self {
        Self::Error(text.to_owned())
    }

    pub(crate) fn wrong_type() -> Self {
        Self::error("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    /// The reply as a connection with RESP3 carries it.
    pub(crate) fn encode(&self, out: &mut Bytes) {
        match self {
            Self::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::Nil => out.extend(b"_\r\n"),
            Self::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => out.extend(format!("-{}\r\n", text.replace(['\r', '\n'], " ")).bytes()),
            Self::List(replies) => {
                out.extend(format!("*{}\r\n", replies.len()).bytes());
                replies.iter().for_each(|reply| reply.encode(out));
            }
        }
    }
}

/// What the start of a buffer is.
pub(crate) enum Decoded {
    /// A command, and its length in bytes.
    Command(Vec<Bytes>, usize),
    Incomplete,
    /// No command, such as a TLS handshake.
    Garbage,
}

pub(crate) fn decode(buffer: &[u8]) -> Decoded {
    if buffer.first().is_some_and(|byte| *byte != b'*') {
        return Decoded::Garbage;
    }
    let Some((count, mut position)) = number_in_line(buffer, 0) else { return Decoded::Incomplete };
    let mut command = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((length, start)) = number_in_line(buffer, position) else { return Decoded::Incomplete };
        if buffer.len() < start + length + 2 {
            return Decoded::Incomplete;
        }
        command.push(buffer[start..start + length].to_vec());
        position = start + length + 2;
    }
    Decoded::Command(command, position)
}

/// The number of a line such as `*3` or `$10`, and where the next line starts.
fn number_in_line(buffer: &[u8], start: usize) -> Option<(usize, usize)> {
    let rest = buffer.get(start + 1..)?;
    let length = rest.windows(2).position(|two| two == b"\r\n")?;
    let number = std::str::from_utf8(&rest[..length]).ok()?.parse().ok()?;
    Some((number, start + 1 + length + 2))
}
