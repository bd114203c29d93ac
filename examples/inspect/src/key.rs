//! The client's key, as the service's key extractor makes it.

use std::net::{IpAddr, SocketAddr};

use tollgate::{ApiKey, ClientIp, GlobalKey, Key, KeyExtractor, MatchedPathKey, observe::Fingerprint};

use crate::files::read_secret;

/// How the service's address extractor groups addresses.
#[derive(Default)]
pub(crate) struct Addresses {
    pub(crate) keep_nat64: bool,
    pub(crate) nat64_prefix: Option<String>,
}

const KINDS: &str = "ip:ADDRESS, ip/LENGTH:ADDRESS, text:VALUE, token:@FILE, route:PATH, fingerprint:TEXT, unmatched \
                     or global";
const FINGERPRINT: &str = "fingerprint:";

/// Whether the key is written as the fingerprint that a log has. It is a whole key, also of a tuple.
pub(crate) fn is_fingerprint(parts: &[String]) -> bool {
    parts.iter().any(|part| part.starts_with(FINGERPRINT))
}

/// The key of one extractor, or the compound key of a tuple of extractors.
pub(crate) fn parse(parts: &[String], addresses: &Addresses) -> Result<Key, String> {
    match parts {
        [] => Err(format!("no key: name the client by {KINDS}")),
        [part] => match part.strip_prefix(FINGERPRINT) {
            Some(text) => {
                let fingerprint: Result<Fingerprint, _> = text.parse();
                fingerprint.map(Key::from).map_err(|error| format!("{part}: {error}"))
            }
            None => parse_part(part, addresses),
        },
        parts if is_fingerprint(parts) => {
            Err(format!("{FINGERPRINT} is that of all parts together: write it without other KEYs"))
        }
        parts => {
            let keys: Result<Vec<Key>, String> = parts.iter().map(|part| parse_part(part, addresses)).collect();
            keys.map(Key::join)
        }
    }
}

fn parse_part(part: &str, addresses: &Addresses) -> Result<Key, String> {
    let (kind, value) = part.split_once(':').unwrap_or((part, ""));
    match kind {
        "global" if value.is_empty() => Ok(GlobalKey.key_of()),
        "unmatched" if value.is_empty() => Ok(MatchedPathKey.key_of(None)),
        "ip" => address(part, value, None, addresses),
        "text" => Ok(Key::from(value)),
        "token" => match value.strip_prefix('@') {
            Some(file) => Ok(ApiKey::bearer().key_of(read_secret(file)?)),
            None => Err("token: write the token into a file and name it: token:@FILE".to_owned()),
        },
        "route" if value.starts_with('/') => Ok(MatchedPathKey.key_of(value)),
        "route" => Err(format!("{part}: a route begins with a slash: route:/search")),
        _ => match kind.strip_prefix("ip/").map(str::parse) {
            Some(Ok(length)) => address(part, value, Some(length), addresses),
            Some(Err(_)) => Err(format!("{part}: the length of a prefix is a number: ip/56:2001:db8::1")),
            None => Err(format!("{part:?} is not a key: write {}", instead_of(part))),
        },
    }
}

/// What to write instead of a key without a kind.
fn instead_of(part: &str) -> String {
    let grouped = match bare_address(part) {
        None => return KINDS.to_owned(),
        Some(address @ IpAddr::V4(_)) => format!("ip:{address}, as PeerIp and ClientIp charge it"),
        Some(address @ IpAddr::V6(_)) => format!(
            "ip:{address}, which PeerIp and ClientIp group by /64 (ip/56:{address} if the service calls \
             with_ipv6_prefix(56))"
        ),
    };
    format!("{grouped}; or text:{part}, if another extractor has this text as its key")
}

/// The address in a key without a kind: alone, with a port, or with the length of a prefix.
fn bare_address(part: &str) -> Option<IpAddr> {
    let with_port = || part.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bare = part.split_once('/').map_or(part, |(address, _)| address);
    bare.trim_matches(['[', ']']).parse().ok().or_else(with_port)
}

/// Other ways to write the keys. The advice when nothing is counted under the keys as given.
pub(crate) fn hints(parts: &[String]) -> Vec<String> {
    parts.iter().filter_map(|part| hint(part)).collect()
}

fn hint(part: &str) -> Option<String> {
    let (kind, value) = part.split_once(':')?;
    if part.starts_with(FINGERPRINT) {
        return Some(format!(
            "{part}: the logs of a service lead to its Redis keys only if it calls Fingerprint::set_secret, with the \
             key_secret of its store; otherwise the fingerprints of each process are its own, and Redis has others: \
             write the plain key, such as ip:203.0.113.7, with the secret of the store"
        ));
    }
    let address = bare_address(value)?;
    match (kind, address) {
        // The text of an IPv4 address is the key of the address.
        ("text", IpAddr::V4(_)) => None,
        ("text", IpAddr::V6(_)) => Some(format!(
            "{part} is the key of an extractor of text; PeerIp and ClientIp charge IPv6 addresses by /64: write \
             ip:{address}"
        )),
        (_, IpAddr::V4(_)) => Some(format!(
            "{part}: behind a proxy, PeerIp charges the address of the proxy, and ClientIp that of the client"
        )),
        (_, IpAddr::V6(_)) => Some(format!(
            "{part}: PeerIp and ClientIp charge IPv6 addresses by /64, unless the service calls with_ipv6_prefix: for \
             with_ipv6_prefix(56) write ip/56:{address}; behind a proxy, PeerIp charges the address of the proxy"
        )),
    }
}

/// The key of an address. [`PeerIp`](tollgate::PeerIp) makes the same keys as [`ClientIp`], which has more settings.
fn address(part: &str, text: &str, prefix: Option<u8>, addresses: &Addresses) -> Result<Key, String> {
    let address: IpAddr = text.parse().map_err(|_| format!("{part}: {text:?} is not an IPv4 or IPv6 address"))?;
    let mut extractor = ClientIp::behind_unix_socket();
    if let Some(length) = prefix {
        extractor = match address {
            IpAddr::V4(_) => extractor.with_ipv4_prefix(length),
            IpAddr::V6(_) => extractor.with_ipv6_prefix(length),
        };
        extractor.validate().map_err(|error| format!("{part}: {error}"))?;
    }
    if addresses.keep_nat64 {
        extractor = extractor.keep_nat64();
    }
    if let Some(prefix) = &addresses.nat64_prefix {
        extractor = extractor.with_nat64_prefix(prefix);
        extractor.validate().map_err(|error| format!("--nat64-prefix: {error}"))?;
    }
    Ok(extractor.key_of(address))
}

#[cfg(test)]
mod tests {
    use tollgate::PeerIp;

    use super::*;

    fn key(parts: &[&str]) -> Result<Key, String> {
        let parts: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
        parse(&parts, &Addresses::default())
    }

    #[test]
    fn keys_are_those_of_the_extractors() {
        let address = "2001:db8:1:2:3::4".parse().unwrap();
        assert_eq!(key(&["ip:2001:db8:1:2:3::4"]), Ok(PeerIp::new().key_of(address)));
        let wide = ClientIp::peer().with_ipv6_prefix(56);
        assert_eq!(key(&["ip/56:2001:db8:1:2:3::4"]), Ok(wide.key_of(address)));
        assert_eq!(key(&["ip/24:203.0.113.7"]), Ok(Key::from("203.0.113.0/24")));
        assert_eq!(key(&["text:17"]), Ok(Key::from(17_u64)));
        assert_eq!(key(&["text:a:b"]), Ok(Key::from("a:b")));
        assert_eq!(key(&["route:/search/"]), Ok(Key::from("/search")));
        assert_eq!(key(&["route:/"]), Ok(Key::from("/")));
        let tuple = Key::join([Key::from("alice"), Key::from("/search")]);
        assert_eq!(key(&["text:alice", "route:/search"]), Ok(tuple));
        assert_ne!(key(&["global"]), key(&["text:*"]));
        assert_ne!(key(&["unmatched"]), key(&["global"]));
    }

    #[test]
    fn settings_of_the_extractor_change_the_key() {
        let own = Addresses { keep_nat64: true, nat64_prefix: Some("2001:db8:122:344::/64".to_owned()) };
        let part = ["ip:2001:db8:122:344:c0:2:2100::".to_owned()];
        assert_eq!(parse(&part, &own), Ok(Key::from("192.0.2.33")));
        assert_ne!(parse(&part, &Addresses::default()), Ok(Key::from("192.0.2.33")));
        let translated = ["ip:64:ff9b::203.0.113.7".to_owned()];
        assert_ne!(parse(&translated, &own), parse(&translated, &Addresses::default()));
    }

    #[test]
    fn a_wrong_key_is_one_message_that_says_what_to_write() {
        for (parts, expected) in [
            (&[][..], "no key: name the client by ip:ADDRESS"),
            (&["alice"], "\"alice\" is not a key: write ip:ADDRESS"),
            (&["203.0.113.7"], "\"203.0.113.7\" is not a key: write ip:203.0.113.7, as PeerIp"),
            (&["203.0.113.7:443"], "\"203.0.113.7:443\" is not a key: write ip:203.0.113.7, as "),
            (
                &["2001:db8::1"],
                "\"2001:db8::1\" is not a key: write ip:2001:db8::1, which PeerIp and ClientIp group by /64",
            ),
            (
                &["[2001:db8::1]:443"],
                "\"[2001:db8::1]:443\" is not a key: write ip:2001:db8::1, which PeerIp and ClientIp group by /64",
            ),
            (&["2001:db8::/64"], "\"2001:db8::/64\" is not a key: write ip:2001:db8::, which "),
            (&["ip:203.0.113"], "ip:203.0.113: \"203.0.113\" is not an IPv4 or IPv6 address"),
            (&["ip/x:::1"], "ip/x:::1: the length of a prefix is a number"),
            (&["ip/200:::1"], "ip/200:::1: "),
            (&["token:sk-live"], "token: write the token into a file and name it"),
            (&["route:search"], "route:search: a route begins with a slash"),
            (&["global:x"], "\"global:x\" is not a key"),
        ] {
            let message = key(parts).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
            assert!(!message.contains("sk-live"), "{message}");
        }
    }
}
