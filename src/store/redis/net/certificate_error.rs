//! What is wrong with the certificate of a server, in words and dates.
//!
//! Names stand without quotes, because texts of servers are cut where they begin to quote.

use std::{
    io,
    time::{Duration, UNIX_EPOCH},
};

use rustls::{CertificateError, Error, pki_types::UnixTime};

/// The most names of a certificate that an error shows.
const MOST_NAMES: usize = 4;

/// The error of a handshake, which explains a certificate that is refused. `naming_advice` says how a server that no
/// URL names is named as in its certificate.
pub(super) fn explained(error: io::Error, naming_advice: Option<&str>) -> io::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let text = match cause {
        Some(Error::InvalidCertificate(cause)) => text_of(cause, naming_advice),
        _ => None,
    };
    text.map_or(error, |text| io::Error::new(io::ErrorKind::InvalidData, text))
}

fn text_of(cause: &CertificateError, naming_advice: Option<&str>) -> Option<String> {
    use CertificateError::{ExpiredContext, NotValidForNameContext, NotValidYetContext, UnknownIssuer};

    Some(match cause {
        NotValidForNameContext { expected, presented } => {
            let (expected, presented) = (expected.to_str(), names(presented));
            let text = format!("the server's certificate is not valid for the name {expected}; {presented}");
            match naming_advice {
                Some(advice) => format!("{text}; {advice}"),
                None => text,
            }
        }
        ExpiredContext { time, not_after } => {
            format!("the server's certificate has expired on {}; here it is {}", date(*not_after), date(*time))
        }
        NotValidYetContext { time, not_before } => {
            format!("the server's certificate is valid from {}; here it is {}", date(*not_before), date(*time))
        }
        UnknownIssuer => "the server's certificate is from an authority that is not trusted".to_owned(),
        _ => return None,
    })
}

/// The names of a certificate. rustls writes them like `DnsName("redis.example")`.
fn names(presented: &[String]) -> String {
    let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_' | '*' | ':');
    let plain = |name: &String| {
        let inner = name.split_once('(').map_or(&**name, |(_, inner)| inner);
        inner.chars().filter(|char| is_part(*char)).collect::<String>()
    };
    let shown: Vec<_> = presented.iter().take(MOST_NAMES).map(plain).collect();
    match presented.len() {
        0 => "it is valid for no name".to_owned(),
        count if count > MOST_NAMES => format!("it is valid for {} and {} more", shown.join(", "), count - MOST_NAMES),
        _ => format!("it is valid for {}", shown.join(", ")),
    }
}

fn date(time: UnixTime) -> String {
    // The latest time that the format has: the year 9999.
    const LATEST: u64 = 253_402_300_799;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(time.as_secs().min(LATEST)))
}
