//! A layer in front of an axum router charges each path by the entry of the handler that runs, or by a dearer one.

use std::convert::Infallible;

use axum::response::{IntoResponse, Response};
use axum::{Router, body::Body, routing::get};
use http::Request;
use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::random::Random;

/// Templates that axum accepts together, in any selection.
const TEMPLATES: [&str; 14] = [
    "/",
    "/v{n}/x",
    "/v{n}",
    "/v/x/y",
    "/files/special",
    "/files/{*rest}",
    "/files/special/deep",
    "/users/{id}",
    "/users/{id}/posts",
    "/users/me",
    "/a/u-{id}",
    "/a/{id}/b",
    "/a/{id}",
    "/{*rest}",
];

const PIECES: [&str; 18] = [
    "", "", "v", "v1", "x", "y", "files", "special", "deep", "users", "me", "7", "posts", "a", "u-", "u-1", "b",
    "{*rest}",
];

/// A path of random segments, many of which the templates have.
fn path(random: &mut Random) -> String {
    let segments = 1 + random.below(4);
    let mut path: String = (0..segments).map(|_| format!("/{}", random.pick(&PIECES))).collect();
    if random.one_in(4) {
        path.push('/');
    }
    path.replace("{*rest}", "%7B")
}

/// An unlimited budget, so that the decision shows what the request cost.
fn limit(costs: &[(&str, Route)]) -> RateLimitLayer<GlobalKey> {
    let policy = Policy::per_hour("all", 1_000_000_000).unwrap();
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, GlobalKey);
    costs.iter().fold(limit, |limit, (route, settings)| limit.route(route, settings.clone()))
}

/// One of two templates of axum conflicts with the other one.
fn router(templates: &[&'static str]) -> Router {
    let handler = |template: &'static str| get(move || async move { [("x-template", template)] });
    templates.iter().fold(Router::new(), |router, template| router.route(template, handler(template)))
}

/// The number of units that a request costs, and the template of the handler that runs.
struct Asked {
    charged: u64,
    template: Option<String>,
}

/// Sends requests through a layer in front of `router`.
struct InFront<S> {
    service: S,
    left: u64,
}

/// The remaining units; `None` if the request is exempt.
fn remaining(response: &Response) -> Option<u64> {
    let field = response.headers().get("ratelimit")?.to_str().unwrap();
    field.split(';').find_map(|part| part.strip_prefix("r=")).map(|units| units.parse().unwrap())
}

async fn ask<S>(front: &mut InFront<S>, path: &str) -> Asked
where
    S: Service<Request<Body>, Response = Response, Error = Infallible> + Clone,
{
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = front.service.clone().oneshot(request).await.unwrap();
    let left = remaining(&response).unwrap_or(front.left);
    let charged = front.left - left;
    front.left = left;
    let template = response.headers().get("x-template").map(|template| template.to_str().unwrap().to_owned());
    Asked { charged, template }
}

#[tokio::test]
async fn law_14_no_spelling_of_200_000_pays_less_than_the_handler_that_runs_costs() {
    let mut random = Random(5);
    let mut handled = 0;
    for _ in 0..200 {
        let templates: Vec<_> = TEMPLATES.into_iter().filter(|_| random.one_in(2)).collect();
        // Half of the templates have an entry. Exempt ones cost nothing, the others between 1 and 50.
        let mut costs = Vec::new();
        for template in &templates {
            if random.one_in(2) {
                costs.push((*template, random.below(50)));
            }
        }
        let entries: Vec<_> = costs
            .iter()
            .map(|&(template, cost)| (template, if cost == 0 { Route::exempt() } else { Route::new().cost(cost) }))
            .collect();
        let cost_of = |template: &str| costs.iter().find(|(other, _)| *other == template).map(|(_, cost)| *cost);
        let service = limit(&entries).layer(router(&templates));
        let mut front = InFront { service, left: 1_000_000_000 };
        for _ in 0..1_000 {
            let path = path(&mut random);
            let asked = ask(&mut front, &path).await;
            let Some(template) = asked.template else { continue };
            handled += 1;
            // The entry of a wildcard also covers the path above it, which a nested router may answer.
            let has_rest_below = cost_of(&format!("{}/{{*rest}}", path.trim_end_matches('/'))).is_some();
            let is_tidy = (path == "/" || !path.ends_with('/') && !path.contains("//")) && !has_rest_below;
            match cost_of(&template) {
                Some(cost) if is_tidy => assert_eq!(asked.charged, cost, "{path} runs {template} of {costs:?}"),
                Some(cost) => assert!(asked.charged >= cost, "{path} runs {template} of {costs:?}"),
                // Another entry may cover the path.
                None => {}
            }
        }
    }
    assert!(handled > 50_000, "the seed is fixed, and {handled} paths were handled");
}

#[tokio::test]
async fn law_14_an_exempt_or_cheaper_entry_covers_a_path_only_as_it_was_sent() {
    for special in [
        Route::exempt(),
        Route::new().cost(1),
        Route::new().policies(Policy::per_minute("loose", 2_000_000_000).unwrap()),
        // A unit of it takes longer to come back than one of the others, but not as long as 40 of them.
        Route::new().policies(Policy::per_day("daily", 700_000_000).unwrap()),
    ] {
        let entries = [("/files/special", special), ("/files/{*rest}", Route::new().cost(40))];
        let routes = router(&["/files/special", "/files/{*rest}"]);
        let service = limit(&entries).layer(routes);
        let mut front = InFront { service, left: 1_000_000_000 };
        for path in ["/files/special/", "/files//special", "//files/special"] {
            let asked = ask(&mut front, path).await;
            if asked.template.is_some() {
                assert_eq!(asked.charged, 40, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn law_14_a_parameter_within_a_path_may_be_empty_as_in_axum() {
    let entries = [("/v{n}/x", Route::new().cost(30))];
    let service = limit(&entries).layer(router(&["/v{n}/x"]));
    let mut front = InFront { service, left: 1_000_000_000 };
    let asked = ask(&mut front, "/v/x").await;
    assert_eq!((asked.charged, asked.template.as_deref()), (30, Some("/v{n}/x")));
}

/// As the gRPC services of tonic in an axum router: the service behind the wildcard routes by the path.
#[tokio::test]
async fn law_14_an_entry_below_a_wildcard_of_the_router_is_enforced() {
    let service = service_fn(|_| async { Ok::<_, Infallible>(().into_response()) });
    let routes = || Router::new().route_service("/grpc.health.v1.Health/{*rest}", service);
    let check = || limit(&[("/grpc.health.v1.Health/Check", Route::new().cost(30))]);
    let nested = || limit(&[("/api/grpc.health.v1.Health/Check", Route::new().cost(30))]);
    let apps = [
        ("", routes().layer(check())),
        ("", routes().route_layer(check())),
        ("/api", Router::new().nest("/api", routes()).layer(nested())),
        ("/api", Router::new().nest("/api", routes().layer(nested()))),
    ];
    for (prefix, app) in apps {
        for (method, left) in [("Check", 999_999_970), ("Watch", 999_999_969)] {
            let request = Request::post(format!("{prefix}/grpc.health.v1.Health/{method}"));
            let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(remaining(&response), Some(left), "{prefix} {method}");
        }
    }
}
