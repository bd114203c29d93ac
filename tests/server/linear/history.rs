//! A history: which calls began and returned in which order, as one process has seen it.

use todc_utils::{Action, History};

/// A history of operations of one kind.
#[derive(Debug)]
pub(super) struct Record<T> {
    events: Vec<Event>,
    /// By the number of the call. `None`: it has done nothing for certain.
    operations: Vec<Option<T>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Event {
    Call(usize),
    Return(usize),
}

impl<T: Clone> Record<T> {
    pub(super) fn new() -> Self {
        Self { events: Vec::new(), operations: Vec::new() }
    }

    /// Notes that a call is about to begin, and returns its number.
    pub(super) fn call(&mut self) -> usize {
        self.events.push(Event::Call(self.operations.len()));
        self.operations.push(None);
        self.operations.len() - 1
    }

    /// Notes what a call has returned.
    pub(super) fn answered(&mut self, call: usize, operation: T) {
        self.operations[call] = Some(operation);
        self.events.push(Event::Return(call));
    }

    /// Notes that a call may take effect at any time after it began, or never.
    pub(super) fn unknown(&mut self, call: usize, operation: T) {
        self.operations[call] = Some(operation);
    }

    /// The calls whose fate is unknown.
    pub(super) fn open(&self) -> usize {
        self.operations.iter().flatten().count() - self.events.iter().filter(|e| matches!(e, Event::Return(_))).count()
    }

    pub(super) fn operations(&self) -> impl Iterator<Item = &T> {
        self.operations.iter().flatten()
    }

    /// The history for the checker. It knows no call that never returns, so those of unknown fate return at the end,
    /// where an effect is the same as none. Each call has a process of its own, because the caller goes on.
    pub(super) fn history(&self) -> History<T> {
        let mut actions = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for &event in &self.events {
            match event {
                Event::Call(call) => {
                    let Some(operation) = &self.operations[call] else { continue };
                    actions.push((call, Action::Call(operation.clone())));
                    open.push(call);
                }
                Event::Return(call) => {
                    actions.push((call, Action::Response(self.operations[call].clone().unwrap())));
                    open.retain(|&other| other != call);
                }
            }
        }
        actions.extend(open.iter().map(|&call| (call, Action::Response(self.operations[call].clone().unwrap()))));
        History::from_actions(actions)
    }
}
