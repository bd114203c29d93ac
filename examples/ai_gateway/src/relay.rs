//! A streamed answer on its way to the client, and its cost.

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tollgate::middleware::Bill;

use crate::chat::{Chat, tokens_of};
use crate::events::{Data, Events};

/// Relays the events of an answer one by one. The bill has the tokens so far, and in the end the figure of the model:
/// so a client that hangs up, and one whose upstream breaks off, pays for what it was sent.
pub(crate) fn stream(body: Body, chat: &Chat, bill: Bill) -> Body {
    let relay = Relay {
        body: body.into_data_stream(),
        events: Events::default(),
        wants_usage: chat.wants_usage,
        // The model has read the prompt.
        estimated: chat.prompt_tokens,
        reported: 0,
        bill,
    };
    relay.charge(false);
    Body::from_stream(stream::unfold(Some(relay), |relay| async {
        let mut relay = relay?;
        match relay.next().await {
            Ok(Some(event)) => Some((Ok(event), Some(relay))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    }))
}

struct Relay {
    body: BodyDataStream,
    events: Events,
    wants_usage: bool,
    /// The tokens of the prompt, and of what was sent.
    estimated: u64,
    /// The most that the model has reported.
    reported: u64,
    bill: Bill,
}

impl Relay {
    /// The next event for the client, with the empty line that ends it.
    async fn next(&mut self) -> Result<Option<Bytes>, axum::Error> {
        loop {
            while let Some(event) = self.events.next() {
                if self.read(&event) {
                    return Ok(Some(event.into()));
                }
            }
            if self.events.is_too_large() {
                return Err(axum::Error::new("an event of the upstream is too large"));
            }
            match self.body.next().await {
                Some(bytes) => self.events.push(&bytes?),
                None => return Ok(self.rest()),
            }
        }
    }

    /// The end of an answer, which may lack its empty line.
    fn rest(&mut self) -> Option<Bytes> {
        let rest = self.events.rest().filter(|rest| self.read(rest));
        if rest.is_none() {
            self.charge(true);
        }
        rest.map(Bytes::from)
    }

    /// Writes the cost of an event on the bill. Returns whether the client gets the event.
    fn read(&mut self, event: &[u8]) -> bool {
        let chunk = match Data::of(event) {
            Data::Chunk(chunk) => chunk,
            Data::Done => {
                self.charge(true);
                return true;
            }
            Data::Other => return true,
        };
        let choices = chunk["choices"].as_array().map(Vec::as_slice);
        let written: usize = choices.unwrap_or_default().iter().map(|choice| bytes_of(&choice["delta"])).sum();
        self.estimated = self.estimated.saturating_add(tokens_of(written));
        self.reported = self.reported.max(chunk["usage"]["total_tokens"].as_u64().unwrap_or(0));
        let is_usage = choices.is_some_and(<[Value]>::is_empty) && chunk["usage"].is_object();
        self.charge(is_usage);
        self.wants_usage || !is_usage
    }

    /// Writes the cost so far on the bill. Until the answer is whole, a report may be of its beginning only, so the
    /// larger figure counts.
    fn charge(&self, is_whole: bool) {
        self.bill.set_cost(match self.reported {
            reported if is_whole && reported > 0 => reported,
            reported => reported.max(self.estimated),
        });
    }
}

/// The bytes of all strings: contents, calls of tools, reasoning and refusals have been written by the model alike.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(bytes_of).sum(),
        Value::Object(fields) => fields.values().map(bytes_of).sum(),
        _ => 0,
    }
}
