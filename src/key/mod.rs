//! Who is charged: the [`Key`], and the extractors that find it in a request.

mod combine;
mod convert;
mod encoded;
mod error;
mod extension;
mod extractor;
mod header;
mod ip;
mod missing;
pub(crate) mod partition;
pub(crate) mod path;
pub(crate) mod secret;
mod subject;

pub use self::{
    combine::IntoExtraction,
    error::KeyError,
    extension::ExtensionKey,
    extractor::{KeyExtractor, KeyOrigin, OnMissingKey},
    header::{ApiKey, HeaderKey},
    ip::{ClientIp, IntoPrefixes, PeerIp, PrefixList},
    missing::MissingKey,
    path::{GlobalKey, MatchedPathKey},
    subject::Key,
};
