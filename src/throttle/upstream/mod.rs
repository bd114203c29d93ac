//! The upstream of a call, whose responses may ask for a pause.

mod grpc;
mod limits;
mod pause;
mod times;

use std::sync::Arc;

use self::pause::pause_of;
use super::{body::HeldCall, response::ResponseHead, settings::Settings};
use crate::{key::Key, runtime::real_time::wall_time};

/// What a call needs once it has a response.
pub(super) struct Upstream<H> {
    settings: Arc<Settings>,
    key: Key,
    head: Arc<H>,
}

impl<H> Upstream<H> {
    pub(super) fn new(settings: Arc<Settings>, key: Key, head: Arc<H>) -> Self {
        Self { settings, key, head }
    }

    /// The response of the throttled client, which carries `held` if it can.
    pub(super) fn finish<Res>(&self, response: Res, held: Option<HeldCall>) -> H::Response
    where
        H: ResponseHead<Res>,
    {
        self.head.finish(response, held)
    }

    /// Pauses the calls of the key if the response asks for it.
    pub(super) fn obey<Res>(&self, response: &Res)
    where
        H: ResponseHead<Res>,
    {
        let (status, headers) = self.head.head(response);
        if let Some(pause) = pause_of(status, headers, wall_time()) {
            self.settings.pause(&self.key, pause);
        }
    }
}
