//! Detects routes that exempt every request.

use http::{Method, Request, Uri};

use crate::{
    error::FirstMistake,
    middleware::{Route, RouteTable},
};

/// The methods of the table, without those that inherit from GET, and without TRACE: hardly a server answers it, so a
/// file that leaves nothing else to be limited limits nothing.
const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS];

/// The first exempt route with `{*rest}` if the exempt routes cover every path, with every method but TRACE. All
/// `routes` are exempt and valid.
pub(super) fn exempts_everything<'a>(routes: &[&'a str]) -> Option<&'a str> {
    let widest = routes.iter().find(|route| route.contains("{*"))?;
    let mut table = RouteTable::default();
    for route in routes {
        table.insert(route, Route::exempt().into_settings(&mut FirstMistake::default())).ok()?;
    }
    // A segment that is no text of any route, so that only parameters cover it. A path with more segments than any
    // route is covered by `{*rest}` alone.
    let longest = routes.iter().map(|route| route.len()).max().unwrap_or(0);
    let first =
        ('a'..='z').find(|first| !routes.iter().any(|route| route.contains(&format!("/{first}")))).unwrap_or('~');
    let segment = format!("/{first}{}", "-".repeat(longest));
    let deepest = routes.iter().map(|route| route.matches('/').count()).max().unwrap_or(0) + 1;
    let covered = |depth: usize, method: &Method| {
        let path = if depth == 0 { "/".to_owned() } else { segment.repeat(depth) };
        let mut parts = Request::new(()).into_parts().0;
        parts.method = method.clone();
        parts.uri = path.parse::<Uri>().ok()?;
        table.resolve(&parts, |_, _| false).map(|settings| settings.exempt)
    };
    let all = (0..=deepest).all(|depth| METHODS.iter().all(|method| covered(depth, method) == Some(true)));
    all.then_some(widest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_leave_no_request_are_found() {
        let by_method: Vec<String> = METHODS.iter().map(|method| format!("{method} /{{*rest}}")).collect();
        let by_method: Vec<&str> = by_method.iter().map(String::as_str).collect();
        let all: [&[&str]; 4] = [&["/{*rest}"], &["/healthz", "/{*all}"], &["/", "/{first}/{*rest}"], &by_method];
        for routes in all {
            assert!(exempts_everything(routes).is_some_and(|route| route.contains("{*")), "{routes:?}");
        }
        let some: [&[&str]; 6] =
            [&[], &["/"], &["/{id}"], &["/static/{*rest}"], &["/{first}/{*rest}"], &by_method[1..]];
        for routes in some {
            assert_eq!(exempts_everything(routes), None, "{routes:?}");
        }
    }
}
