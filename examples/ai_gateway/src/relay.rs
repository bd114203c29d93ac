//! A streamed answer on its way to the client, and its cost.

use axum::body::{Body, BodyDataStream, Bytes};
use futures_util::stream::{self, StreamExt};
use serde_json::Value;
use tollgate::middleware::Bill;

use crate::chat::{Chat, tokens_of};

/// Relays the events of an answer one by one. The bill has the tokens so far, and in the end the figure of the model:
/// so a client that hangs up, and one whose upstream breaks off, pays for what it was sent.
pub(crate) fn stream(body: Body, chat: Chat, bill: Bill) -> Body {
    // The model has read the prompt.
    bill.set_cost(chat.prompt_tokens);
    let relay = Relay { body: body.into_data_stream(), received: Vec::new(), wants_usage: chat.wants_usage, bill };
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
    /// The beginning of an event whose end has not been received.
    received: Vec<u8>,
    wants_usage: bool,
    bill: Bill,
}

impl Relay {
    /// The next event for the client, with the empty line that ends it.
    async fn next(&mut self) -> Result<Option<Bytes>, axum::Error> {
        loop {
            while let Some(end) = self.received.windows(2).position(|bytes| bytes == b"\n\n") {
                let event: Vec<u8> = self.received.drain(..end + 2).collect();
                if self.charge(&event) {
                    return Ok(Some(event.into()));
                }
            }
            match self.body.next().await {
                Some(bytes) => self.received.extend_from_slice(&bytes?),
                None => return Ok(None),
            }
        }
    }

    /// Writes the cost of an event on the bill. Returns whether the client gets the event.
    fn charge(&self, event: &[u8]) -> bool {
        let data = event.strip_prefix(b"data: ").and_then(|data| serde_json::from_slice::<Value>(data).ok());
        let Some(chunk) = data else { return true };
        if let Some(total) = chunk["usage"]["total_tokens"].as_u64() {
            self.bill.set_cost(total);
            return self.wants_usage;
        }
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
            self.bill.add(tokens_of(text));
        }
        true
    }
}
