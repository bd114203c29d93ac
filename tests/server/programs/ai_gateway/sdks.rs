//! The Python SDKs of OpenAI and of Anthropic, 64 calls at once over a budget of 10 000 tokens.

use serde_json::json;

use super::{Gateway, estimate, usage};
use crate::program::run;
use crate::support::{print_line, until};

const CALLS: u64 = 64;
const BUDGET: u64 = 10_000;
const WORDS: usize = 130;
const MAX_TOKENS: u64 = 300;

/// The first streams typed chunks. The second knows no such API, and sends plain requests.
const SCRIPT: &str = "\
import concurrent.futures, importlib, json, sys
name, url, calls, words, max_tokens = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
try:
    sdk = importlib.import_module(name)
except ImportError:
    print('missing')
    sys.exit()
messages = [{'role': 'user', 'content': 'a ' * words}]
body = {'model': 'scripted', 'messages': messages, 'max_tokens': max_tokens}
if name == 'openai':
    client = sdk.OpenAI(base_url=url + '/v1', api_key='sk-ann', max_retries=0)
    def call():
        stream = client.chat.completions.create(**body, stream=True, stream_options={'include_usage': True})
        chunks = list(stream)
        assert sum(len(chunk.choices) for chunk in chunks) == max_tokens
        return chunks[-1].usage.total_tokens
else:
    client = sdk.Anthropic(base_url=url, auth_token='sk-ann', max_retries=0)
    def call():
        return client.post('/v1/chat/completions', body=body, cast_to=object)['usage']['total_tokens']
def attempt(_):
    try:
        return call()
    except sdk.RateLimitError:
        return None
with concurrent.futures.ThreadPoolExecutor(calls) as pool:
    print(json.dumps(list(pool.map(attempt, range(calls)))))
";

/// The calls that were answered, and what they have used. `None` without the SDK, which `tests/run` does not install.
async fn calls(sdk: &str, gateway: &Gateway) -> Option<(u64, u64)> {
    let url = format!("http://{}", gateway.0.address);
    let [calls, words, max_tokens] = [CALLS, WORDS as u64, MAX_TOKENS].map(|number| number.to_string());
    let output = run("python3", &["-c", SCRIPT, sdk, &url, &calls, &words, &max_tokens]).await?;
    if output.trim() == "missing" {
        eprintln!("skipped: python3 has no {sdk}");
        return None;
    }
    let used: Vec<Option<u64>> = serde_json::from_str(&output).unwrap();
    assert_eq!(used.len() as u64, CALLS);
    let answered: Vec<u64> = used.into_iter().flatten().collect();
    Some((answered.len() as u64, answered.iter().sum()))
}

/// The estimate of a call. Its body also says whether the answer is a stream.
fn estimate_by(sdk: &str) -> u64 {
    let messages = json!([{ "role": "user", "content": "a ".repeat(WORDS) }]);
    let mut body = json!({ "model": "scripted", "messages": messages, "max_tokens": MAX_TOKENS });
    if sdk == "openai" {
        body["stream"] = true.into();
        body["stream_options"] = json!({ "include_usage": true });
    }
    estimate(&body.to_string(), MAX_TOKENS)
}

/// What the calls have used, and what the budget was charged, which is the same.
async fn spent(sdk: &str, rule: &[&str]) -> Option<(u64, u64)> {
    // A part is included, and the rest are credits.
    let gateway = Gateway::start(&[&["--included", "6000", "--credits", "4000"], rule].concat());
    let (answered, used) = calls(sdk, &gateway).await?;
    assert_eq!(used, answered * usage(WORDS, MAX_TOKENS));
    // Beyond its limit, a policy has none available. The team has room for all.
    until("all calls are charged", || gateway.spent("team-tokens") == used && gateway.spent("streams") == 0);
    Some((answered, used))
}

async fn keeps_the_budget(sdk: &str) {
    let Some((held, spent_by_holds)) = spent(sdk, &[]).await else { return };
    let Some((charged, spent_afterwards)) = spent(sdk, &["--charge-afterwards"]).await else { return };
    let estimate = estimate_by(sdk);
    let underestimates = held * (usage(WORDS, MAX_TOKENS) - estimate);
    print_line(&format!(
        "ai gateway, {sdk}: {CALLS} calls at once, each estimated at {estimate}, over {BUDGET} tokens: {held} answered \
         and {spent_by_holds} spent with holds, underestimates {underestimates}; {charged} answered and {spent_afterwards} spent if charged afterwards"
    ));
    assert!(spent_by_holds <= BUDGET + underestimates, "{spent_by_holds}");
    assert!(BUDGET - estimate * 2 < spent_by_holds, "the budget is used: {spent_by_holds}");
    assert!(spent_afterwards > BUDGET, "{spent_afterwards}");
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_calls_of_the_sdk_of_openai_at_once_spend_no_more_than_the_budget_and_the_underestimates() {
    keeps_the_budget("openai").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_calls_of_the_sdk_of_anthropic_at_once_spend_no_more_than_the_budget_and_the_underestimates() {
    keeps_the_budget("anthropic").await;
}
