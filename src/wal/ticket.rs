//! What the writers of one batch look at while they wait.

use std::sync::PoisonError;

use super::group::Need;
use super::primitives::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};

/// What the writers of a batch look at.
pub(super) struct Ticket<P> {
    state: Mutex<TicketState<P>>,
}

pub(super) struct TicketState<P> {
    pub(super) outcome: Outcome<P>,
    /// The place of the waiter that shall lead.
    pub(super) leader: Option<usize>,
    /// The places of those whose deadline came.
    pub(super) gone: Vec<usize>,
}

pub(super) enum Outcome<P> {
    Waiting,
    Written(P),
    Done(P),
    Failed(Cause),
}

impl<P> Ticket<P> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(TicketState { outcome: Outcome::Waiting, leader: None, gone: Vec::new() }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TicketState<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Clone> TicketState<P> {
    /// The answer for a waiter, if there is one.
    pub(super) fn answer(&self, need: Need) -> Option<Result<P>> {
        match &self.outcome {
            Outcome::Done(placement) => Some(Ok(placement.clone())),
            Outcome::Written(placement) if need == Need::Written => Some(Ok(placement.clone())),
            Outcome::Failed(cause) => Some(Err(cause.error())),
            Outcome::Waiting | Outcome::Written(_) => None,
        }
    }
}

/// An error that any number of writers get.
#[derive(Clone)]
pub(super) struct Cause {
    kind: ErrorKind,
    pub(super) text: String,
}

impl Cause {
    pub(super) fn of(error: &Error) -> Self {
        Self { kind: error.kind().clone(), text: error.to_string() }
    }

    pub(super) fn error(&self) -> Error {
        Error::new(self.kind.clone(), format!("the log could not write: {}", self.text))
    }
}
