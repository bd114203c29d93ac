//! `examples/ai_gateway/`: budgets of organisations under streams, failures and the SDKs of two providers.

mod ends;
mod forged;
mod relayed;
mod sdks;
mod upstream;

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::streamed::{Answer, send};
use crate::{built::PROGRAMS, running::Server};

const CHAT: &str = "/v1/chat/completions";
const KEY: &str = "sk-ann";

/// A running gateway, asked with the API key of ann.
struct Gateway(Server);

impl Gateway {
    fn start(arguments: &[&str]) -> Self {
        Self(Server::run(&PROGRAMS.ai_gateway, &[&["--listen", "127.0.0.1:0"], arguments].concat()))
    }

    /// Begins an answer of `max_tokens` tokens to a prompt of `words` words.
    fn begin(&self, model: &str, words: usize, max_tokens: u64) -> Answer {
        self.ask(&chat(model, words, max_tokens, true))
    }

    fn ask(&self, body: &str) -> Answer {
        Answer::to(&self.0.address, "POST", CHAT, KEY, body)
    }

    /// Asks for an answer that is not streamed.
    fn ask_for_all(&self, words: usize, max_tokens: u64) -> TcpStream {
        send(&self.0.address, "POST", CHAT, KEY, &chat("scripted", words, max_tokens, false))
    }

    /// What is spent and held under a policy.
    fn spent(&self, policy: &str) -> u64 {
        let limit = self.limit(policy);
        limit["limit"].as_u64().unwrap() - limit["available"].as_u64().unwrap()
    }

    /// What `/usage` tells of a policy.
    fn limit(&self, policy: &str) -> Value {
        let answer = Answer::to(&self.0.address, "GET", "/usage", KEY, "");
        assert_eq!(answer.status, 200);
        let usage: Value = serde_json::from_str(&answer.rest()).unwrap();
        usage["limits"].as_array().unwrap().iter().find(|limit| limit["name"] == policy).unwrap().clone()
    }
}

fn chat(model: &str, words: usize, max_tokens: u64, is_stream: bool) -> String {
    let messages = json!([{ "role": "user", "content": "a ".repeat(words) }]);
    json!({ "model": model, "messages": messages, "max_tokens": max_tokens, "stream": is_stream }).to_string()
}

/// The gateway's estimate of a request: a token for each four bytes of its body, and what the model writes.
fn estimate(body: &str, written: u64) -> u64 {
    (body.len() as u64).div_ceil(4) + written
}

/// What the scripted model reports: a token for each word, and four for the message.
fn usage(words: usize, max_tokens: u64) -> u64 {
    words as u64 + 4 + max_tokens
}
