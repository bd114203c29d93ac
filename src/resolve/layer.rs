//! The layer and its settings.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use http::request::Parts;
use tower_layer::Layer;

use super::{
    service::{Resolve, Settings},
    value::IntoResolved,
};
use crate::observe::{Observer, Reporter};

/// Creates a layer that awaits `find` for each request and inserts what it finds into the request's extensions.
///
/// `find` returns `Option<T>` or `Result<Option<T>, E>`. See the [module's page](super) for the rules and examples.
pub fn resolve<F, L>(find: F) -> ResolveLayer<F>
where
    F: Fn(&Parts) -> L,
    L: Future<Output: IntoResolved>,
{
    let settings = Settings { timeout: Duration::from_secs(5), reporter: Reporter::default() };
    ResolveLayer { find: Arc::new(find), settings }
}

/// Layer that applies [`Resolve`]; made by [`resolve`].
#[must_use]
pub struct ResolveLayer<F> {
    find: Arc<F>,
    settings: Settings,
}

impl<F> ResolveLayer<F> {
    /// Sets the time that the closure has for an answer. Defaults to 5 s. A request that is not resolved in time goes
    /// on without the extension.
    ///
    /// Requests wait for the closure, so choose the longest time that a request may wait. Without a tokio runtime with
    /// timers, a closure that does not answer at once is out of time.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Adds an observer of failures, such as `observe::Metrics`.
    pub fn with_observer(mut self, observer: impl Observer) -> Self {
        self.settings.reporter.add(observer);
        self
    }

    /// Switches off what the layer reports by itself. Observers get the same events as before.
    pub fn without_notices(mut self) -> Self {
        self.settings.reporter.silence();
        self
    }
}

impl<S, F> Layer<S> for ResolveLayer<F> {
    type Service = Resolve<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        Resolve::new(inner, Arc::clone(&self.find), Arc::new(self.settings.clone()))
    }
}

impl<F> Clone for ResolveLayer<F> {
    fn clone(&self) -> Self {
        Self { find: Arc::clone(&self.find), settings: self.settings.clone() }
    }
}

impl<F> fmt::Debug for ResolveLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolveLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
