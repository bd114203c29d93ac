//! The instance of the inner service that was polled ready, until it is called or given up.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

use tower_service::Service;

/// The inner service after `poll_ready`, which may have reserved something in it: a permit, a place in a buffer.
///
/// Exactly one of its methods ends the reservation. If a closure of the service's own code panics before (a key, a
/// cost, a rejection), the drop ends it: the service may live on without another request.
pub(super) struct Readied<'a, S: Clone> {
    inner: &'a mut S,
    is_reserved: bool,
}

impl<'a, S: Clone> Readied<'a, S> {
    pub(super) fn new(inner: &'a mut S) -> Self {
        Self { inner, is_reserved: true }
    }

    /// Calls the instance that was polled ready.
    #[inline]
    pub(super) fn call<Request>(mut self, request: Request) -> S::Future
    where
        S: Service<Request>,
    {
        self.is_reserved = false;
        self.inner.call(request)
    }

    /// Moves the instance that was polled ready out, and leaves a clone. The reservation belongs to that instance, not
    /// to the clone (tower-rs/tower-http#561).
    pub(super) fn take(mut self) -> S {
        let clone = self.inner.clone();
        self.is_reserved = false;
        mem::replace(self.inner, clone)
    }

    /// Gives the reservation back, by replacing the instance with a clone. Otherwise an idle service would hold the
    /// reservation until its next request.
    pub(super) fn release(mut self) {
        self.is_reserved = false;
        *self.inner = self.inner.clone();
    }
}

impl<S: Clone> Drop for Readied<'_, S> {
    fn drop(&mut self) {
        if self.is_reserved {
            // A second panic would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| *self.inner = self.inner.clone()));
        }
    }
}
