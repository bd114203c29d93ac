//! `examples/model_gateway/main.rs`, which the page `docs/model-gateway.md` shows.

use crate::{built::PROGRAMS, running::Server, streamed::Answer, support::until};

const PAGE: &str = include_str!("../../../docs/model-gateway.md");
const PROGRAM: &str = include_str!("../../../examples/model_gateway/main.rs");

#[test]
fn the_page_of_the_model_gateway_shows_the_whole_program() {
    let (_, program) = PROGRAM.split_once("\n\n").expect("the docs of the program end with an empty line");
    let (_, shown) = PAGE.split_once("```rust,no_run\n").unwrap();
    let (shown, _) = shown.split_once("```\n").unwrap();
    assert!(
        shown == program,
        "copy examples/model_gateway/main.rs to docs/model-gateway.md, without the lines of `//!`"
    );
}

/// An account, with its API key.
struct Client<'a> {
    gateway: &'a Server,
    key: &'static str,
}

impl Client<'_> {
    /// Sends a prompt of `words` words, and reads the head of the response.
    fn begin(&self, words: usize, max_tokens: u64) -> Answer {
        let body = format!("{{\"prompt\":\"{}\",\"max_tokens\":{max_tokens}}}", "word ".repeat(words));
        Answer::to(&self.gateway.address, "POST", "/v1/complete", self.key, &body)
    }

    /// Whether a prompt is answered, to its end.
    fn passes(&self, words: usize, max_tokens: u64) -> bool {
        let answer = self.begin(words, max_tokens);
        let status = answer.status;
        assert!(matches!(status, 200 | 429), "{status}");
        answer.rest();
        status == 200
    }

    /// The policy that denies a prompt.
    #[track_caller]
    fn denied_by(&self, words: usize, max_tokens: u64, policy: &str) {
        let answer = self.begin(words, max_tokens);
        let status = answer.status;
        let body = answer.rest();
        assert!(status == 429 && body.contains(&format!("\"violated-policies\":[\"{policy}\"]")), "{status} {body}");
    }
}

#[test]
fn the_model_gateway_refuses_above_each_limit_and_charges_the_tokens_that_were_written() {
    let gateway = Server::run(&PROGRAMS.model_gateway, &["127.0.0.1:0"]);
    let [ann, bob] = ["key-of-ann", "key-of-bob"].map(|key| Client { gateway: &gateway, key });

    // An answer holds `max_tokens` until it ends, and is then charged what the model has written: 6 of 500.
    let answer = ann.begin(6, 500);
    assert_eq!(answer.status, 200);
    ann.denied_by(1, 1, "output-tokens");
    assert!(answer.rest().contains("event: usage\ndata: 6"));
    until("six tokens are charged", || ann.passes(0, 494));
    ann.denied_by(0, 495, "output-tokens");

    // A client that hangs up pays for the tokens that it was sent, not for the 300 that the answer would have had.
    let mut answer = bob.begin(300, 500);
    answer.reads("data:");
    drop(answer);
    until("what the client was sent is charged", || bob.passes(0, 400));
    bob.denied_by(0, 500, "output-tokens");

    bob.denied_by(701, 1, "input-tokens");

    let streams = [bob.begin(50, 50), bob.begin(50, 50)];
    bob.denied_by(1, 1, "streams");
    drop(streams);

    let passed = (0..20).take_while(|_| ann.passes(0, 1)).count();
    assert_eq!(passed, 8, "ann has sent two requests that were not refused, and may send ten");
    ann.denied_by(0, 1, "requests");
}
