//! Answers of upstreams that write events in their own way: what reaches the client, and what it costs.

use std::{io::Write, thread, time::Duration};

use serde_json::{Value, json};

use super::upstream::{EVENTS, Upstream, begin};
use super::{Gateway, chat, estimate};
use crate::support::until;

const TOTAL: u64 = 510;

fn chunk(delta: Value, usage: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta }], "usage": usage })
}

fn text(text: &str) -> Value {
    chunk(json!({ "content": text }), Value::Null)
}

fn last(total: u64) -> Value {
    json!({ "choices": [], "usage": { "total_tokens": total } })
}

/// What a client is sent that asks for a stream, and the gateway, whose budget is charged afterwards.
fn relayed(upstream: &Upstream) -> (String, Gateway) {
    let gateway = Gateway::start(&["--upstream", &upstream.url]);
    let answer = gateway.begin("other", 1, 100);
    assert_eq!(answer.status, 200);
    (answer.rest(), gateway)
}

#[test]
fn events_are_relayed_with_each_end_of_line_and_without_the_space_and_the_last_empty_line() {
    for (start, end) in [("data: ", "\n\n"), ("data: ", "\r\n\r\n"), ("data:", "\n\n"), ("id: 1\r\ndata:", "\n\r\n")] {
        for is_whole in [true, false] {
            let mut chunks = vec![text("hello ").to_string(), text("world").to_string(), last(TOTAL).to_string()];
            if is_whole {
                chunks.push("[DONE]".to_owned());
            }
            let mut events: String = chunks.iter().map(|chunk| format!("{start}{chunk}{end}")).collect();
            if !is_whole {
                events.truncate(events.trim_end().len());
            }
            let (answer, gateway) = relayed(&Upstream::answering(EVENTS, events.clone()));
            assert!(answer.contains("hello ") && answer.contains("world"), "{events:?}: {answer:?}");
            assert!(!answer.contains("total_tokens"), "the client has not asked for the usage: {answer:?}");
            assert_eq!(answer.contains("[DONE]"), is_whole, "{answer:?}");
            until("the usage is charged", || gateway.spent("included") == TOTAL);
        }
    }
}

#[test]
fn the_end_of_a_text_that_no_empty_line_follows_reaches_the_client() {
    let events = format!("data: {}\n\ndata: {}\n", text("hello "), text("world"));
    let (answer, gateway) = relayed(&Upstream::answering(EVENTS, events));
    assert!(answer.contains("world"), "{answer:?}");
    let charged = estimate(&chat("other", 1, 100, true), 4);
    until("the prompt and both texts are charged", || gateway.spent("included") == charged);
}

#[test]
fn a_usage_beside_a_text_is_charged_and_the_text_reaches_the_client() {
    let world = chunk(json!({ "content": "world" }), json!({ "total_tokens": TOTAL }));
    let events = format!("data: {}\n\ndata: {world}\n\ndata: [DONE]\n\n", text("hello "));
    let (answer, gateway) = relayed(&Upstream::answering(EVENTS, events));
    assert!(answer.contains("world"), "{answer:?}");
    until("the usage is charged", || gateway.spent("included") == TOTAL);
}

#[test]
fn a_second_usage_of_less_does_not_lower_the_cost() {
    let events = format!("data: {}\n\ndata: {}\n\ndata: {}\n\n", text("hello "), last(TOTAL), last(1));
    let (_, gateway) = relayed(&Upstream::answering(EVENTS, events));
    until("the larger usage is charged", || gateway.spent("streams") == 0 && gateway.spent("included") == TOTAL);
}

#[test]
fn an_answer_that_is_no_stream_reaches_a_client_that_has_asked_for_one() {
    let answer = json!({ "choices": [{ "message": { "content": "hello" } }], "usage": { "total_tokens": TOTAL } });
    let (relayed, gateway) = relayed(&Upstream::answering("application/json", answer.to_string()));
    assert!(relayed.contains(&answer.to_string()), "{relayed:?}");
    until("the usage is charged", || gateway.spent("included") == TOTAL);
}

#[test]
fn an_event_of_more_than_a_mebibyte_ends_the_answer() {
    let events = format!("data: {}\n\ndata: {}\n\n", text("hello "), text(&"x".repeat(3 << 20)));
    let (answer, gateway) = relayed(&Upstream::answering(EVENTS, events));
    assert!(answer.contains("hello ") && answer.len() < 1 << 20, "{}", answer.len());
    let charged = estimate(&chat("other", 1, 100, true), 2);
    until("the prompt and the first text are charged", || gateway.spent("included") == charged);
}

#[test]
fn law_1_a_client_that_hangs_up_pays_for_tool_calls_reasoning_and_refusals() {
    let written = "some text of forty-eight letters, again and again";
    let call = json!({ "tool_calls": [{ "index": 0, "function": { "arguments": written } }] });
    for delta in [call, json!({ "reasoning_content": written }), json!({ "refusal": written })] {
        let event = format!("data: {}\n\n", chunk(delta, Value::Null));
        let upstream = Upstream::start(move |stream| {
            begin(stream, EVENTS, None)?;
            loop {
                stream.write_all(event.as_bytes())?;
                thread::sleep(Duration::from_millis(5));
            }
        });
        let gateway = Gateway::start(&["--upstream", &upstream.url]);
        let mut answer = gateway.begin("other", 1, 5_000);
        for _ in 0..20 {
            answer.reads(written);
        }
        drop(answer);
        until("the hold has ended", || gateway.spent("streams") == 0);
        let least = estimate(&chat("other", 1, 5_000, true), 20 * written.len() as u64 / 4);
        until("the text is charged", || (least..4_000).contains(&gateway.spent("included")));
    }
}

#[test]
fn law_1_an_answer_that_is_not_streamed_and_breaks_off_costs_the_estimate() {
    let upstream = Upstream::start(|stream| {
        begin(stream, "application/json", Some(9_999))?;
        stream.write_all(b"{\"choices\": [")
    });
    let gateway = Gateway::start(&["--upstream", &upstream.url]);
    let body = chat("other", 1, 100, false);
    assert_eq!(gateway.ask(&body).status, 502);
    until("the hold has ended", || gateway.spent("streams") == 0);
    until("the estimate is charged", || gateway.spent("included") == estimate(&body, 100));
}
