//! One table: what every error of Redis means for the check, for the caller and for the connection.

use redis::{ErrorKind as RedisErrorKind, RedisError};

use crate::error::{Error, ErrorKind};

/// What an error means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Class {
    kind: ErrorKind,
    /// Whether the check may have been charged all the same.
    fate_unknown: bool,
    /// Whether the connection is to be replaced.
    broken: bool,
}

impl Class {
    const fn of(kind: ErrorKind) -> Self {
        Self { kind, fate_unknown: false, broken: false }
    }

    const fn broken(self) -> Self {
        Self { broken: true, ..self }
    }

    const fn fate_unknown(self) -> Self {
        Self { fate_unknown: true, ..self }
    }
}

/// Converts an error of the client or of the server.
pub(super) fn convert(error: &RedisError) -> Error {
    // A server's text may quote what was sent, keys included.
    let message = match error.code() {
        Some(code) => code.to_owned(),
        None => error.to_string(),
    };
    finish(class_of(error), message)
}

/// Converts an error that the script reports for a single check, and tells whether the connection is to be replaced.
pub(super) fn convert_reported(message: &str) -> (Error, bool) {
    let code = reported_code(message);
    if code.is_empty() {
        // The script itself failed, and nobody knows how far it came.
        return (finish(Class::of(ErrorKind::Misconfigured).fate_unknown(), message.to_owned()), false);
    }
    let class = class_of_code(code);
    (finish(class, code.to_owned()), class.broken)
}

fn finish(class: Class, message: String) -> Error {
    let error = Error::new(class.kind, message);
    if class.fate_unknown { error.charge_unknown() } else { error }
}

/// Whether the connection that gave this error is to be replaced.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    class_of(error).broken
}

fn class_of(error: &RedisError) -> Class {
    match error.kind() {
        _ if error.is_timeout() => Class::of(ErrorKind::Deadline).fate_unknown(),
        RedisErrorKind::Io if error.is_connection_refusal() => Class::of(ErrorKind::Unavailable).broken(),
        RedisErrorKind::Io => Class::of(ErrorKind::Unavailable).broken().fate_unknown(),
        // A reply that cannot be read: whatever comes next cannot be trusted either.
        RedisErrorKind::Parse => Class::of(ErrorKind::Unavailable).broken().fate_unknown(),
        RedisErrorKind::AuthenticationFailed => Class::of(ErrorKind::Misconfigured).broken(),
        _ => class_of_code(error.code().unwrap_or_default()),
    }
}

/// By code, never by text: texts differ between versions of the server.
fn class_of_code(code: &str) -> Class {
    match code {
        "WRONGTYPE" => Class::of(ErrorKind::BadKey),
        // The role of this server has changed; another address may have the primary.
        "READONLY" | "MASTERDOWN" => Class::of(ErrorKind::Unavailable).broken(),
        "BUSY" | "CLUSTERDOWN" | "LOADING" | "MISCONF" | "NOREPLICAS" | "OOM" | "TRYAGAIN" | "UNKILLABLE" => {
            Class::of(ErrorKind::Unavailable)
        }
        "NOAUTH" | "WRONGPASS" => Class::of(ErrorKind::Misconfigured).broken(),
        _ => Class::of(ErrorKind::Misconfigured),
    }
}

/// The code in a script's error. Redis 7 starts with it; older servers put the script's position before it.
fn reported_code(message: &str) -> &str {
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    message.split([' ', '-']).find(is_code).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_in_old_and_new_messages() {
        for (message, kind) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::BadKey),
            ("@user_script: 42: -WRONGTYPE Operation against a key", ErrorKind::BadKey),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
            ("@user_script: 9: READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
            ("user_script:9: attempt to index a nil value", ErrorKind::Misconfigured),
            ("NOPERM this user has no permissions to run the 'hset' command", ErrorKind::Misconfigured),
        ] {
            assert_eq!(convert_reported(message).0.kind(), kind, "{message}");
        }
    }

    #[test]
    fn a_change_of_role_replaces_the_connection_also_when_the_script_reports_it() {
        assert!(convert_reported("READONLY You can't write against a read only replica.").1);
        assert!(!convert_reported("OOM command not allowed when used memory > 'maxmemory'.").1);
        assert!(convert_reported("user_script:9: attempt to index a nil value").0.may_have_charged());
    }

    #[test]
    fn an_unread_reply_leaves_the_fate_unknown_and_a_refused_connection_does_not() {
        use std::io;
        let reset = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        assert!(convert(&reset).may_have_charged() && breaks_connection(&reset));
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(!convert(&refused).may_have_charged() && breaks_connection(&refused));
        let late = RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        assert!(convert(&late).may_have_charged() && !breaks_connection(&late));
        assert_eq!(convert(&late).kind(), ErrorKind::Deadline);
    }
}
