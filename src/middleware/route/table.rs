//! The table of routes: which settings a request gets.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use http::{Method, request::Parts};

use super::{
    Settings,
    clean::is_clean,
    pattern::Pattern,
    tree::{Kind, Node},
};
use crate::key::path::{matched_path, without_trailing_slash};
use crate::{
    error::ConfigError,
    middleware::setup_checks::Countdown,
    observe::{Observer, Warning},
};

/// Settings by path, and by method and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    entries: Vec<Entry>,
    /// Entries by their own text, so that most requests take one look-up.
    exact: HashMap<String, usize>,
    tree: Node,
    lookout: Arc<Lookout>,
}

/// A path's settings: for particular methods, and for all others.
#[derive(Clone, Debug, Default)]
struct Entry {
    rows: Vec<Row>,
    /// Has no braces, so that its text is the only path that it covers.
    is_text: bool,
}

#[derive(Clone, Debug)]
struct Row {
    /// As the user wrote it.
    route: String,
    /// `None`: all that have no row of their own.
    method: Option<Method>,
    settings: Settings,
}

/// Shared by the layers that have this table.
#[derive(Debug)]
struct Lookout(Countdown);

/// Before this a route that is met now and then would be taken for one that never is.
const REQUESTS: u32 = 10_000;

impl Default for Lookout {
    fn default() -> Self {
        Self(Countdown::new(REQUESTS))
    }
}

impl Routes {
    pub(crate) fn insert(&mut self, route: &str, settings: Settings) -> Result<(), ConfigError> {
        let Pattern { method, path } = Pattern::parse(route)?;
        let index = *self.tree.place_of(path).get_or_insert(self.entries.len());
        if index == self.entries.len() {
            self.entries.push(Entry { rows: Vec::new(), is_text: !path.contains(['{', '}']) });
        }
        let rows = &mut self.entries[index].rows;
        if rows.iter().any(|row| row.method == method) {
            return Err(ConfigError::DuplicateRoute { route: route.to_owned() });
        }
        rows.push(Row { route: route.to_owned(), method, settings });
        self.exact.insert(path.to_owned(), index);
        // Another table, with another beginning.
        self.lookout = Arc::default();
        Ok(())
    }

    /// Counts a request, and warns of the routes that none of the first ones was for.
    #[inline]
    pub(crate) fn look(&self, met: Option<&Settings>, observer: &dyn Observer) {
        if self.entries.is_empty() || self.lookout.0.is_over() {
            return;
        }
        if let Some(settings) = met {
            settings.met.store(true, Ordering::Relaxed);
        }
        if self.lookout.0.count() {
            self.warn(observer);
        }
    }

    #[cold]
    fn warn(&self, observer: &dyn Observer) {
        let rows = self.entries.iter().flat_map(|entry| &entry.rows);
        for Row { route, .. } in rows.filter(|row| !row.settings.met.load(Ordering::Relaxed)) {
            observer.on_warning(&Warning::UnmatchedRoute { route: route.clone(), requests: REQUESTS });
        }
    }

    /// The settings of every route.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Settings> {
        self.entries.iter().flat_map(|entry| entry.rows.iter().map(|row| &row.settings))
    }

    /// The request's settings: those of the most specific path that has some for its method.
    pub(crate) fn resolve(&self, parts: &Parts) -> Option<&Settings> {
        if self.entries.is_empty() {
            return None;
        }
        // Where no router has matched, a plain path can still be told.
        let (path, kind) = match matched_path(parts) {
            Some(template) => (template, Kind::Template),
            None => (without_trailing_slash(parts.uri.path())?, Kind::Plain),
        };
        // A server that cleans a plain path may serve another one, which is not exempt.
        let may_be_exempt = || kind == Kind::Template || is_clean(path);
        let accept = |index: usize| self.entries[index].settings(&parts.method, &may_be_exempt);
        // A client may send a path that looks like a template.
        let same = |&&index: &&usize| kind == Kind::Template || self.entries[index].is_text;
        let exact = self.exact.get(path).filter(same);
        exact.and_then(|&index| accept(index)).or_else(|| self.tree.find(path, kind, &accept))
    }
}

impl Entry {
    /// Settings with the method come before those that it inherits, and those before the ones without a method.
    fn settings(&self, method: &Method, may_be_exempt: &impl Fn() -> bool) -> Option<&Settings> {
        let fits = |row: &&Row| !row.settings.exempt || may_be_exempt();
        let of = |method: Option<&Method>| self.rows.iter().find(|row| row.method.as_ref() == method).filter(fits);
        let inherited = || inherits_get(method).then(|| of(Some(&Method::GET))).flatten();
        of(Some(method)).or_else(inherited).or_else(|| of(None)).map(|row| &row.settings)
    }
}

/// Handlers of GET answer HEAD as well. A CONNECT with a path is a WebSocket over HTTP/2 (RFC 8441): what a GET asks
/// for over HTTP/1.1. Neither must be a way around the settings of GET.
fn inherits_get(method: &Method) -> bool {
    matches!(*method, Method::HEAD | Method::CONNECT)
}
