//! The ends of a request: what it costs if the client, the upstream or the process goes away.

use super::{Gateway, chat, estimate, usage};
use crate::streamed::Answer;
use crate::support::{redis_server::RedisServer, until};

/// Of the key, of its team and of its organisation.
const TOKENS: [&str; 3] = ["key-tokens", "team-tokens", "included"];

#[test]
fn an_answer_holds_its_estimate_at_all_three_levels_and_is_charged_what_the_usage_chunk_says() {
    let gateway = Gateway::start(&[]);
    let mut answer = gateway.begin("scripted", 40, 100);
    assert_eq!(answer.status, 200);
    answer.reads("word");
    for policy in TOKENS {
        assert_eq!(gateway.spent(policy), estimate(&chat("scripted", 40, 100, true), 100), "{policy}");
    }
    assert_eq!((gateway.spent("streams"), gateway.spent("requests")), (1, 1));
    let rest = answer.rest();
    assert!(
        rest.contains("[DONE]") && !rest.contains("total_tokens"),
        "the client has not asked for the usage: {rest}"
    );
    until("the usage is charged", || TOKENS.iter().all(|policy| gateway.spent(policy) == usage(40, 100)));
    assert_eq!((gateway.spent("streams"), gateway.spent("requests"), gateway.spent("credits")), (0, 1, 0));
}

#[test]
fn credits_pay_when_the_included_tokens_have_no_room_and_a_denial_takes_nothing() {
    let gateway = Gateway::start(&["--included", "100", "--credits", "80"]);
    // 54 tokens of 100, then 54 of the credits. After that neither has room for 50 and the prompt.
    for _ in 0..2 {
        let answer = gateway.begin("scripted", 0, 50);
        assert_eq!(answer.status, 200);
        answer.rest();
    }
    until("both are charged", || gateway.spent("included") + gateway.spent("credits") == 2 * usage(0, 50));
    assert_eq!((gateway.spent("included"), gateway.spent("credits")), (usage(0, 50), usage(0, 50)));
    let denied = gateway.begin("scripted", 0, 50);
    assert_eq!(denied.status, 429);
    assert!(denied.rest().contains("violated-policies"));
    assert_eq!((gateway.spent("requests"), gateway.spent("team-tokens")), (2, 2 * usage(0, 50)));
    assert_eq!(gateway.begin("scripted", 0, 20).status, 200, "46 of the included tokens are left");
}

#[test]
fn a_client_that_hangs_up_pays_for_the_prompt_and_for_what_it_was_sent() {
    let gateway = Gateway::start(&[]);
    let mut answer = gateway.begin("scripted", 40, 2_000);
    answer.reads("word");
    answer.reads("word");
    drop(answer);
    let body = chat("scripted", 40, 2_000, true);
    until("the hold has ended", || gateway.spent("streams") == 0 && gateway.spent("included") < estimate(&body, 2_000));
    // What was on its way when the client hung up is charged too.
    let spent = gateway.spent("included");
    assert!(spent >= estimate(&body, 2), "{spent}");
    assert_eq!(gateway.spent("team-tokens"), spent);
}

#[test]
fn a_client_that_hangs_up_before_an_answer_that_is_not_streamed_pays_the_estimate() {
    let gateway = Gateway::start(&[]);
    let held = estimate(&chat("scripted", 40, 6_000, false), 6_000);
    let asked = gateway.ask_for_all(40, 6_000);
    until("the estimate is held", || gateway.spent("streams") == 1);
    drop(asked);
    until("the hold has ended", || gateway.spent("streams") == 0);
    until("the estimate is charged", || gateway.spent("included") == held);
}

#[test]
fn an_upstream_that_fails_costs_nothing_and_one_that_breaks_off_what_it_has_sent() {
    let gateway = Gateway::start(&[]);
    let broken = gateway.begin("broken", 40, 100);
    assert_eq!(broken.status, 500);
    assert!(broken.rest().contains("the model is broken"));
    until("nothing is charged", || gateway.spent("included") == 0);
    let cut = gateway.begin("cut", 40, 100);
    assert_eq!(cut.status, 200);
    cut.rest();
    let charged = estimate(&chat("cut", 40, 100, true), 5);
    until("five tokens and the prompt are charged", || gateway.spent("included") == charged);

    let gone = Gateway::start(&["--upstream", "http://127.0.0.1:1"]);
    assert_eq!(gone.begin("scripted", 40, 100).status, 502);
    until("nothing is charged", || gone.spent("included") == 0);
}

#[test]
fn what_a_killed_gateway_has_held_is_charged_as_held_and_its_streams_are_free() {
    let server = RedisServer::start();
    // The deadline is long, because the gateways and Redis share the cores with other tests.
    let start = || Gateway::start(&["--redis", &server.url(), "--hold-ttl", "3", "--deadline", "5000"]);
    let (mut killed, other) = (start(), start());
    let mut answers = [killed.begin("scripted", 40, 2_000), killed.begin("scripted", 40, 2_000)];
    answers.iter_mut().for_each(|answer| answer.reads("word"));
    // It takes longer than the time-to-live, so its hold is renewed.
    let mut kept = other.begin("scripted", 0, 800);
    kept.reads("word");
    killed.0.kill();
    let held = 2 * estimate(&chat("scripted", 40, 2_000, true), 2_000);
    let running = estimate(&chat("scripted", 0, 800, true), 800);
    assert_eq!(other.spent("included"), held + running, "the holds of both processes are open");
    kept.rest();
    until("the answer of the other process is settled", || other.spent("included") == held + usage(0, 800));
    until("the streams are free", || other.spent("streams") == 0);
    for policy in TOKENS {
        assert!(policy == "key-tokens" || other.spent(policy) == held + usage(0, 800), "{policy}");
    }
}

#[test]
fn usage_tells_each_limit_and_when_the_budget_is_exhausted() {
    let gateway = Gateway::start(&["--included", "1000"]);
    assert_eq!(Answer::to(&gateway.0.address, "GET", "/usage", "sk-unknown", "").status, 401);
    assert_eq!(gateway.limit("included")["exhausted_in"], serde_json::Value::Null);
    gateway.begin("scripted", 0, 900).rest();
    until("the usage is charged", || gateway.spent("included") == usage(0, 900));
    let included = gateway.limit("included");
    assert_eq!(
        (&included["of"], &included["limit"], &included["available"]),
        (&"organisation".into(), &1000.into(), &96.into())
    );
    assert!(included["reset"].as_u64() <= Some(31 * 86_400));
    let names = ["requests", "key-tokens", "streams", "team-tokens", "credits"];
    assert!(names.iter().all(|name| gateway.limit(name)["available"].as_u64() > Some(0)));
}
