//! The meaning of each Redis error for the check, for the caller and for the connection.

use std::{error::Error as StdError, io, sync::Arc};

use redis::{ErrorKind as RedisErrorKind, RedisError};

use self::{Charged::*, Socket::*};
use super::redact::{Passwords, without_arguments};
use crate::error::{Error, ErrorKind, StoreEvidence};

/// The meaning of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Class {
    kind: ErrorKind,
    socket: Socket,
    charged: Charged,
}

/// Whether the connection is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Socket {
    Keep,
    /// A new connection is dialled at once. The dial looks the name up, so it may lead to another server.
    Replace,
}

/// Whether the check may have been charged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Charged {
    No,
    Perhaps,
}

const fn class(kind: ErrorKind, socket: Socket, charged: Charged) -> Class {
    Class { kind, socket, charged }
}

/// The codes with which an error reply can begin, as of Redis 8 and Valkey 9. Errors are classified by code, because
/// texts differ between versions. A server that replies with one of these codes has not run the command, so it has
/// charged nothing.
#[rustfmt::skip]
const CODES: &[(&str, ErrorKind, Socket)] = &[
    // The server cannot serve now. The connection works again when the server can.
    ("BUSY",         ErrorKind::Unavailable,        Keep),    // another client's script still runs
    ("CLUSTERDOWN",  ErrorKind::Unavailable,        Keep),    // slots without a master
    ("INPROG",       ErrorKind::Unavailable,        Keep),    // a failover is under way
    ("IOERR",        ErrorKind::Unavailable,        Keep),    // a slot is moving, and its target is unavailable
    ("LOADING",      ErrorKind::Unavailable,        Keep),    // reading the data set from disk
    ("MISCONF",      ErrorKind::Unavailable,        Keep),    // no writes while snapshots fail
    ("NOREPLICAS",   ErrorKind::Unavailable,        Keep),    // no writes without enough replicas
    ("OOM",          ErrorKind::Unavailable,        Keep),    // no writes above maxmemory
    (TRY_AGAIN,      ErrorKind::Unavailable,        Keep),    // the slot of the keys is moving to another node
    ("UNKILLABLE",   ErrorKind::Unavailable,        Keep),    // BUSY, and the script has written already
    // The role of the server has changed; its name may lead to another server by now.
    ("MASTERDOWN",   ErrorKind::Unavailable,        Replace), // a replica that has lost its master
    ("NOMASTERLINK", ErrorKind::Unavailable,        Replace), // the same, reported by a sentinel
    ("READONLY",     ErrorKind::Unavailable,        Replace), // a replica
    ("REDIRECT",     ErrorKind::Unavailable,        Replace), // Valkey: the role has just changed
    // The connection is not logged in; a new connection logs in again.
    ("DENIED",       ErrorKind::StoreMisconfigured, Replace), // protected mode
    ("NOAUTH",       ErrorKind::StoreMisconfigured, Replace), // a password is needed
    ("WRONGPASS",    ErrorKind::StoreMisconfigured, Replace), // the password is wrong
    // The error is permanent until the setup is corrected.
    ("ASK",          ErrorKind::StoreMisconfigured, Keep),    // a cluster, connected to as a single server
    ("CROSSSLOT",    ErrorKind::StoreMisconfigured, Keep),    // a cluster behind a proxy
    ("ERR",          ErrorKind::StoreMisconfigured, Keep),    // unknown commands, forbidden ones, a script that fails
    ("EXECABORT",    ErrorKind::StoreMisconfigured, Keep),
    ("MOVED",        ErrorKind::StoreMisconfigured, Keep),    // a cluster, connected to as a single server
    ("NOPERM",       ErrorKind::StoreMisconfigured, Keep),    // the ACL lacks a command or a key
    ("NOPROTO",      ErrorKind::StoreMisconfigured, Keep),
    ("NOSCRIPT",     ErrorKind::StoreMisconfigured, Keep),    // after EVAL has sent the script: a proxy that mixes servers
    // Only this key is affected.
    ("NOTACOUNT",    ErrorKind::BadKey,             Keep),    // the script: a value that no algorithm has written
    ("WRONGTYPE",    ErrorKind::BadKey,             Keep),    // a value of another application
];

const TRY_AGAIN: &str = "TRYAGAIN";

/// How a server says that a script has met a key which it does not have, in a slot that it gives away. An earlier check
/// of the call has removed the key, because the call itself was accepted.
const NOT_LOCAL: &str = "attempted to access a non local key";

/// The codes of a server that refuses to write and still reads.
const NO_WRITES: [&str; 3] = ["MISCONF", "NOREPLICAS", "OOM"];

/// The meaning of an error reply with this code.
fn class_of_code(code: &str) -> Class {
    match CODES.iter().find(|(known, ..)| *known == code) {
        Some(&(_, kind, socket)) => class(kind, socket, No),
        None => class(ErrorKind::StoreMisconfigured, Keep, No),
    }
}

/// The meaning of an error of the client or of the server.
fn class_of(error: &RedisError) -> Class {
    match error.kind() {
        _ if error.is_timeout() => class(ErrorKind::Deadline, Keep, Perhaps),
        RedisErrorKind::Io if error.is_connection_refusal() => class(ErrorKind::Unavailable, Replace, No),
        RedisErrorKind::Io if is_invalid_data(error) => class(ErrorKind::StoreMisconfigured, Replace, Perhaps),
        RedisErrorKind::Io => class(ErrorKind::Unavailable, Replace, Perhaps),
        // A reply that cannot be parsed: the replies behind it cannot be trusted either.
        RedisErrorKind::Parse => class(ErrorKind::Unavailable, Replace, Perhaps),
        RedisErrorKind::AuthenticationFailed => class(ErrorKind::StoreMisconfigured, Replace, No),
        // The name has no address.
        RedisErrorKind::InvalidClientConfig => class(ErrorKind::Unavailable, Replace, No),
        RedisErrorKind::MasterNameNotFoundBySentinel => class(ErrorKind::StoreMisconfigured, Replace, No),
        // A slot has moved to a node that cannot be reached; the node that has redirected is healthy.
        RedisErrorKind::ClusterConnectionNotFound => class(ErrorKind::Unavailable, Keep, No),
        // The server is not Redis, or is too old.
        RedisErrorKind::UnexpectedReturnType => class(ErrorKind::StoreMisconfigured, Replace, Perhaps),
        _ => match error.code() {
            // Redis 6.2 and older put the error that a script met into the text.
            Some("ERR") => match error.detail().map(nested_code) {
                Some(code) if !code.is_empty() => class_of_code(code),
                _ => class_of_code("ERR"),
            },
            code => class_of_code(code.unwrap_or_default()),
        },
    }
}

/// Whether TLS has refused a certificate, the scheme of the URL is wrong, or the setup of a Unix socket is.
pub(crate) fn is_invalid_data(error: &RedisError) -> bool {
    // The redis crate returns the `Arc` in which it keeps the error.
    let source = error.source().and_then(|source| source.downcast_ref::<Arc<dyn StdError + Send + Sync>>());
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// Whether the setup has to be corrected before a dial can succeed.
pub(crate) fn is_misconfigured(error: &RedisError) -> bool {
    class_of(error).kind == ErrorKind::StoreMisconfigured
}

/// Converts an error of the client or of the server.
pub(crate) fn convert(error: &RedisError, passwords: &Passwords) -> Error {
    let error = finish(class_of(error), text_of(error, passwords));
    // While a slot moves, its nodes still answer other checks.
    if is_about_several_keys(&error) { error.with_evidence(StoreEvidence::Answered) } else { error }
}

/// The text of the server or of the client. A server's text begins with its code.
fn text_of(error: &RedisError, passwords: &Passwords) -> String {
    let text = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        // The client appends the name of its error kind.
        (None, _) => error.to_string().replacen(&format!(" - {:?}", error.kind()), "", 1),
    };
    without_arguments(&text, passwords)
}

/// Whether a node has refused a call, or a check of it, because some of its keys are at another node. Such a check has
/// charged nothing.
pub(crate) fn is_about_several_keys(error: &Error) -> bool {
    error.message().split(' ').next() == Some(TRY_AGAIN)
}

/// Converts an error of a dial. No check has been sent on the connection, so none was charged.
pub(crate) fn convert_dial(error: &RedisError, passwords: &Passwords) -> Error {
    let Class { kind, .. } = class_of(error);
    let kind = if kind == ErrorKind::Deadline { ErrorKind::Unavailable } else { kind };
    let failure = finish(class(kind, Replace, No), text_of(error, passwords));
    if error.is_timeout() { failure.with_evidence(StoreEvidence::Late) } else { failure }
}

/// Converts an error that the script reports for a single check. Also returns whether the connection has to be
/// replaced.
pub(crate) fn convert_reported(message: &str, passwords: &Passwords) -> (Error, bool) {
    if message.contains(NOT_LOCAL) {
        // A check meets each of its keys before it changes one, so nothing was charged.
        return (try_again(), false);
    }
    let code = reported_code(message);
    let text = without_arguments(message, passwords);
    if matches!(code, "" | "ERR" | "NOPERM") {
        // The script failed, or lacks permission for a command. Earlier commands have run.
        return (finish(class(ErrorKind::StoreMisconfigured, Keep, Perhaps), text), false);
    }
    let class = class_of_code(code);
    let error = finish(class, text);
    // A denial writes nothing, so further checks may still get an answer.
    let error = if NO_WRITES.contains(&code) { error.with_evidence(StoreEvidence::Answered) } else { error };
    (error, class.socket == Replace)
}

/// The error of a check whose keys are not all with one node.
fn try_again() -> Error {
    let text = format!("{TRY_AGAIN} a key was removed while its slot moves to another node");
    finish(class_of_code(TRY_AGAIN), text).with_evidence(StoreEvidence::Answered)
}

/// Creates the error of a class.
fn finish(class: Class, message: String) -> Error {
    let error = Error::new(class.kind, message);
    if class.charged == Perhaps { error.charge_unknown() } else { error }
}

/// Whether the connection that returned this error has to be replaced.
pub(crate) fn breaks_connection(error: &RedisError) -> bool {
    class_of(error).socket == Replace
}

/// The code in the error of a script. With Redis 7 the error starts with the code; older servers put the script's
/// position before it.
fn reported_code(message: &str) -> &str {
    let is_code = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    message.split([' ', '-']).find(is_code).unwrap_or_default()
}

/// The known code in the text of an error that begins with ERR: `Error running script (..): @user_script: 9: -OOM ..`.
fn nested_code(text: &str) -> &str {
    let known = |word: &&str| CODES.iter().any(|(code, ..)| code == word);
    if text.contains("user_script") { text.split([' ', '-']).find(known).unwrap_or_default() } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(error: &RedisError) -> Error {
        super::convert(error, &Passwords::default())
    }

    fn convert_reported(message: &str) -> (Error, bool) {
        super::convert_reported(message, &Passwords::default())
    }

    #[test]
    fn codes_are_found_in_old_and_new_messages() {
        for (message, kind) in [
            ("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::BadKey),
            ("@user_script: 42: -WRONGTYPE Operation against a key", ErrorKind::BadKey),
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Unavailable),
            ("@user_script: 9: READONLY You can't write against a read only replica.", ErrorKind::Unavailable),
            ("user_script:9: attempt to index a nil value", ErrorKind::StoreMisconfigured),
            ("NOPERM this user has no permissions to run the 'hset' command", ErrorKind::StoreMisconfigured),
        ] {
            assert_eq!(convert_reported(message).0.kind(), kind, "{message}");
        }
    }

    #[test]
    fn a_change_of_role_in_the_error_of_a_script_replaces_the_connection() {
        assert!(convert_reported("READONLY You can't write against a read only replica.").1);
        assert!(!convert_reported("OOM command not allowed when used memory > 'maxmemory'.").1);
    }

    #[test]
    fn a_script_that_fails_or_lacks_a_permission_may_have_charged_before() {
        for (message, charged) in [
            ("user_script:9: attempt to index a nil value", true),
            ("ERR The user executing the script can't run this command or subcommand", true),
            ("@user_script: 9: DB index is out of range", true),
            ("@user_script: 9: The user executing the script can't run this command or subcommand", true),
            ("NOPERM this user has no permissions to run the 'pexpire' command", true),
            ("READONLY You can't write against a read only replica.", false),
            ("OOM command not allowed when used memory > 'maxmemory'.", false),
        ] {
            assert_eq!(convert_reported(message).0.may_have_charged(), charged, "{message}");
        }
    }

    #[test]
    fn an_unread_reply_leaves_the_fate_unknown_and_a_refused_connection_does_not() {
        let reset = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        assert!(convert(&reset).may_have_charged() && breaks_connection(&reset));
        let refused = RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(!convert(&refused).may_have_charged() && breaks_connection(&refused));
        let late = RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        assert!(convert(&late).may_have_charged() && !breaks_connection(&late));
        assert_eq!(convert(&late).kind(), ErrorKind::Deadline);
    }

    fn reply(line: &str) -> RedisError {
        redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn each_code_has_the_same_meaning_in_a_reply_and_in_a_script() {
        for &(code, kind, socket) in CODES {
            let error = reply(&format!("{code} some text with key tollgate:{{secret}}:p"));
            assert_eq!(convert(&error).kind(), kind, "{code}");
            assert_eq!(breaks_connection(&error), socket == Replace, "{code}");
            assert!(!convert(&error).may_have_charged(), "{code}");
            assert!(!convert(&error).to_string().contains("secret"), "{code}");
            let (reported, replace) = convert_reported(&format!("{code} some text"));
            assert_eq!((reported.kind(), replace), (kind, socket == Replace), "{code}");
            let old = reply(&format!("ERR Error running script (call to f_12ab): @user_script:9: -{code} some text"));
            assert_eq!((convert(&old).kind(), breaks_connection(&old)), (kind, socket == Replace), "{code}");
        }
        assert_eq!(convert(&reply("NEWCODE something")).kind(), ErrorKind::StoreMisconfigured);
    }

    #[test]
    fn a_refusal_because_of_several_keys_is_recognised_by_its_code() {
        assert!(is_about_several_keys(&convert(&reply("TRYAGAIN Multiple keys request during rehashing of slot"))));
        assert!(is_about_several_keys(&convert(&reply("TRYAGAIN"))));
        assert!(!is_about_several_keys(&convert(&reply("ERR TRYAGAIN later"))));
    }

    #[test]
    fn a_key_that_an_earlier_check_of_the_call_has_removed_while_its_slot_moves_is_asked_for_again() {
        for message in [
            "ERR Script attempted to access a non local key in a cluster node",
            "ERR Error running script (call to f_12ab): @user_script:9: ERR Script attempted to access a non local key in \
             a cluster node",
            "Script attempted to access a non local key in a cluster node script: 12ab, on @user_script:9.",
        ] {
            let (error, replaces) = convert_reported(message);
            assert!(is_about_several_keys(&error) && !error.may_have_charged() && !replaces, "{message}: {error}");
        }
    }

    #[test]
    fn errors_of_the_client_are_classified() {
        use ErrorKind::*;
        let io = |kind| RedisError::from(io::Error::from(kind));
        let client = |kind| RedisError::from((kind, "text"));
        for (error, kind, socket, charged) in [
            (io(io::ErrorKind::TimedOut), Deadline, Keep, Perhaps),
            (io(io::ErrorKind::ConnectionRefused), Unavailable, Replace, No),
            (io(io::ErrorKind::NotFound), Unavailable, Replace, No),
            (io(io::ErrorKind::ConnectionReset), Unavailable, Replace, Perhaps),
            (io(io::ErrorKind::BrokenPipe), Unavailable, Replace, Perhaps),
            (io(io::ErrorKind::UnexpectedEof), Unavailable, Replace, Perhaps),
            (io(io::ErrorKind::InvalidData), StoreMisconfigured, Replace, Perhaps),
            (redis::parse_redis_value(b"?!").unwrap_err(), Unavailable, Replace, Perhaps),
            (client(RedisErrorKind::AuthenticationFailed), StoreMisconfigured, Replace, No),
            (client(RedisErrorKind::InvalidClientConfig), Unavailable, Replace, No),
            (client(RedisErrorKind::MasterNameNotFoundBySentinel), StoreMisconfigured, Replace, No),
            (client(RedisErrorKind::ClusterConnectionNotFound), Unavailable, Keep, No),
            (client(RedisErrorKind::UnexpectedReturnType), StoreMisconfigured, Replace, Perhaps),
            (client(RedisErrorKind::RESP3NotSupported), StoreMisconfigured, Keep, No),
        ] {
            assert_eq!(class_of(&error), class(kind, socket, charged), "{error}");
        }
    }

    #[test]
    fn a_dial_that_took_too_long_has_charged_nothing() {
        let late = convert_dial(&RedisError::from(io::Error::from(io::ErrorKind::TimedOut)), &Passwords::default());
        assert_eq!((late.kind(), late.may_have_charged()), (ErrorKind::Unavailable, false));
    }
}
