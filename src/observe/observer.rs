//! The [`Observer`] trait, and a place for an observer that is set later.

use std::sync::{Arc, PoisonError, RwLock};

use crate::observe::event::Event;

/// Receives the events of a limiter.
///
/// # Examples
///
/// See [the module's page](crate::observe#customised).
pub trait Observer: Send + Sync + 'static {
    /// An event occurred.
    ///
    /// Called in the path of a request, by several threads at once, so it must not block: count, sample, or pass the
    /// event to another task. A panic ends the call of this observer alone: the request goes on, other observers get
    /// the event, and the first panic is reported as a line for operators. With `panic = "abort"` in the profile of the
    /// program, a panic ends the process.
    fn on_event(&self, event: &Event<'_>);

    /// Whether this observer writes `tracing` events about what a limiter [reports by
    /// itself](crate::observe#what-a-limiter-reports-by-itself). The limiter then omits its own events; its lines still
    /// go to stderr if no subscriber takes the events.
    ///
    /// Defaults to `false`, because an observer that only counts must not silence the report that limits are not
    /// enforced.
    fn traces(&self) -> bool {
        false
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_event(&self, event: &Event<'_>) {
        (**self).on_event(event);
    }

    fn traces(&self) -> bool {
        (**self).traces()
    }
}

/// Creates an observer that calls `f` for each event, under the rules of [`Observer::on_event`].
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe};
///
/// let print_warnings = observe::from_fn(|event| {
///     if event.name() == "warning" {
///         eprintln!("{event}");
///     }
/// });
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(print_warnings);
/// ```
pub fn from_fn<F>(f: F) -> impl Observer
where
    F: Fn(&Event<'_>) + Send + Sync + 'static,
{
    struct FromFn<F>(F);

    impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for FromFn<F> {
        fn on_event(&self, event: &Event<'_>) {
            (self.0)(event);
        }
    }

    FromFn(f)
}

/// The observer of an object that exists before its observer is set. Read once for each call of the store, not for each
/// check.
#[derive(Default)]
pub(crate) struct ObserverCell(RwLock<Option<Arc<dyn Observer>>>);

impl ObserverCell {
    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        // The value is replaced as a whole, so a poisoned lock is usable.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
