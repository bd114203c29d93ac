//! Bodies that hide what they cost.

use serde_json::{Value, json};

use super::upstream::{EVENTS, Upstream};
use super::{Gateway, chat, estimate};
use crate::support::until;

const MAX_TOKENS: u64 = 100;

/// A request with further fields.
fn body(changes: &Value) -> String {
    let mut body: Value = serde_json::from_str(&chat("scripted", 1, MAX_TOKENS, true)).unwrap();
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

/// Checks what is held while the model writes.
fn holds(gateway: &Gateway, body: &str, max_tokens: u64) {
    let mut answer = gateway.ask(body);
    assert_eq!(answer.status, 200);
    answer.reads("word");
    assert_eq!(gateway.spent("included"), estimate(body, max_tokens));
    drop(answer);
    until("the hold has ended", || gateway.spent("streams") == 0);
}

#[test]
fn law_1_each_byte_of_a_body_counts_also_outside_the_contents_of_its_messages() {
    let tools = json!([{ "type": "function", "function": { "name": "word ".repeat(1_000) } }]);
    for hidden in [json!({ "messages": vec![json!({ "content": "" }); 1_000] }), json!({ "tools": tools })] {
        let body = body(&hidden);
        holds(&Gateway::start(&[]), &body, MAX_TOKENS);
        assert_ne!(Gateway::start(&["--included", "1000", "--credits", "1"]).ask(&body).status, 200);
    }
}

#[test]
fn law_1_a_request_for_more_than_one_answer_is_refused() {
    let gateway = Gateway::start(&[]);
    for n in [json!(0), json!(2), json!("2"), json!(1.5)] {
        let refused = gateway.ask(&body(&json!({ "n": n })));
        assert_eq!(refused.status, 400, "{n}");
        assert!(refused.rest().contains("n is not 1"));
    }
    for n in [json!(1), json!(null)] {
        assert_eq!(gateway.ask(&body(&json!({ "n": n }))).status, 200, "{n}");
    }
}

#[test]
fn law_1_max_completion_tokens_is_held_as_max_tokens_is_and_the_larger_counts() {
    for (max_tokens, max_completion_tokens, held) in [
        (json!(null), json!(2_000), 2_000),
        (json!(10), json!(2_000), 2_000),
        (json!(2_000), json!(10), 2_000),
        (json!(null), json!(null), 256),
    ] {
        let body = body(&json!({ "max_tokens": max_tokens, "max_completion_tokens": max_completion_tokens }));
        holds(&Gateway::start(&[]), &body, held);
    }
    let gateway = Gateway::start(&[]);
    for wrong in [json!(0), json!(-1), json!("10")] {
        let refused = gateway.ask(&body(&json!({ "max_completion_tokens": wrong })));
        assert_eq!(refused.status, 400);
        assert!(refused.rest().contains("max_completion_tokens is not a number from 1"));
    }
}

#[test]
fn law_1_an_upstream_that_knows_only_max_tokens_keeps_to_the_estimate() {
    let upstream = Upstream::answering(EVENTS, "data: [DONE]\n\n");
    let gateway = Gateway::start(&["--upstream", &upstream.url]);
    for (max_tokens, max_completion_tokens, sent) in [
        (json!(null), json!(20), json!(20)),
        (json!(30), json!(20), json!(30)),
        (json!(10), json!(20), json!(10)),
        (json!(null), json!(null), json!(256)),
    ] {
        let body = body(&json!({ "max_tokens": max_tokens, "max_completion_tokens": max_completion_tokens }));
        assert_eq!(gateway.ask(&body).status, 200, "{body}");
        let request = upstream.requests.recv().unwrap();
        assert_eq!((&request["max_tokens"], &request["max_completion_tokens"]), (&sent, &max_completion_tokens));
    }
}
