//! client_ip.json: the address that a request is charged to, through the extractor and through a real layer.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::{body::Body, extract::ConnectInfo};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use serde_json::Value;
use tollgate::{
    ClientIp, ConfigError, Key, KeyExtractor, Limiter, MemoryStore, Policy, RateLimitLayer, key::PrefixList,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::outcome::{Outcome, expect, id, unknown};

const OPTIONS: [&str; 9] = [
    "source",
    "trusted_proxies",
    "trusted_hops",
    "on_missing",
    "on_malformed",
    "on_opaque",
    "trust_unix_peer",
    "ipv6_prefix",
    "nat64",
];

pub(crate) async fn run(file: &Value) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["client_ip"].as_array().unwrap() {
        results.push((id(case), run_case(case).await));
    }
    results
}

async fn run_case(case: &Value) -> Outcome {
    if let Some(skipped) = unknown(&case["config"], &OPTIONS) {
        return skipped;
    }
    let expected = &case["expected"];
    let rejected = |error: &str| expect("rejected", &error, &expected["reject"].as_str().unwrap_or("a key"));
    match client(&case["config"]) {
        Err(error) if error.to_string().contains(" contains every address, so every client would be trusted, ") => {
            rejected("config_trusts_everyone").into()
        }
        Err(error) => rejected(&error.to_string()).into(),
        Ok(client) => {
            let (parts, ()) = request(case).into_parts();
            match client.extract(&parts) {
                Ok(Some(key)) => {
                    let key = key.encoded().to_vec();
                    let wanted = expected["key"].as_str().map(|key| Key::from(key).encoded().to_vec());
                    let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
                    expect("key", &Some(text(key)), &wanted.map(text)).into()
                }
                Ok(None) => Outcome::Failed("exempt".into()),
                Err(error) => match rejected(error.cause()) {
                    Ok(()) => is_refused(client, request(case)).await.into(),
                    error => error.into(),
                },
            }
        }
    }
}

fn client(config: &Value) -> Result<ClientIp, ConfigError> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let trusted = PrefixList::new(texts(&config["trusted_proxies"]))?;
    let hops = config["trusted_hops"].as_u64().map(|hops| usize::try_from(hops).unwrap());
    let mut client = match (config["source"].as_str().unwrap(), hops) {
        ("peer", _) => ClientIp::peer(),
        ("x-forwarded-for", None) => ClientIp::x_forwarded_for(trusted)?,
        ("x-forwarded-for", Some(hops)) => ClientIp::x_forwarded_for(hops)?,
        ("forwarded", None) => ClientIp::forwarded(trusted)?,
        ("forwarded", Some(hops)) => ClientIp::forwarded(hops)?,
        (header, None) => ClientIp::header(header, trusted)?,
        (header, Some(_)) => ClientIp::header(header, PrefixList::dangerously_everybody())?,
    };
    if config["on_missing"] == "peer" {
        client = client.peer_if_missing();
    }
    if config["on_opaque"] == "vouching_proxy" {
        client = client.proxy_if_opaque();
    }
    if config["trust_unix_peer"] == true {
        client = client.trust_unix_peer();
    }
    if config["nat64"] == false {
        client = client.keep_nat64();
    }
    match config["ipv6_prefix"].as_u64() {
        Some(length) => {
            let client = client.with_ipv6_prefix(u8::try_from(length).unwrap());
            client.validate().map(|()| client)
        }
        None => Ok(client),
    }
}

fn request(case: &Value) -> Request<()> {
    let mut request = Request::new(());
    for line in case["headers"].as_array().unwrap() {
        let (name, value) = (line[0].as_str().unwrap(), line[1].as_str().unwrap());
        // One byte for each character where possible, as in obs-text.
        let bytes: Result<Vec<u8>, _> = value.chars().map(|character| u8::try_from(u32::from(character))).collect();
        let value = bytes.unwrap_or_else(|_| value.as_bytes().to_vec());
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().append(name, HeaderValue::from_bytes(&value).unwrap());
    }
    if let Some(peer) = case["peer"].as_str() {
        let peer: IpAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 4711)));
    }
    request
}

/// Asserts that the layer refuses the request with 400.
async fn is_refused(client: ClientIp, request: Request<()>) -> Result<(), String> {
    let layer = RateLimitLayer::new(Limiter::new(MemoryStore::new()), Policy::per_minute("p", 1).unwrap(), client);
    let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let Ok(response) = ServiceBuilder::new().layer(layer).service(handler).oneshot(request).await;
    expect("status", &response.status(), &StatusCode::BAD_REQUEST)
}
