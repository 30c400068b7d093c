//! What the writers of one batch look at while they wait.

use std::sync::PoisonError;

use super::contract::Need;
use super::primitives::{AtomicBool, Mutex, MutexGuard, Ordering, Thread};
use super::record::Lsn;
use crate::error::{Error, ErrorKind, Result};

/// What the writers of a batch look at.
pub(super) struct Ticket<P, R> {
    state: Mutex<TicketState<P, R>>,
    /// Whether a look into the state may be worth it: whoever waits looks often.
    has_news: AtomicBool,
}

pub(super) struct TicketState<P, R> {
    pub(super) outcome: Outcome<P>,
    /// The records, once they are of no more use. Each writer frees one, the last of them what is left: if the leader freed them all, it would
    /// hold up a core while the others come back.
    pub(super) spent: Vec<R>,
    /// The place of the waiter that shall lead.
    pub(super) leader: Option<usize>,
    /// The places of those whose deadline came.
    pub(super) gone: Vec<usize>,
    /// Whether one of them has left with an LSN, and may ask whether it is durable.
    pub(super) may_ask: bool,
    /// Who sleeps and has to be woken, by place; a leader that waits for more writers has none.
    pub(super) asleep: Vec<(Option<usize>, Thread)>,
}

pub(super) enum Outcome<P> {
    Waiting,
    Written(P),
    Done(P),
    Failed(Cause),
    /// Not written yet, and it will be.
    Owed(Cause),
}

/// What a writer asked for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) need: Need,
    /// The LSN of its first record.
    pub(super) first: Lsn,
    /// How many records it has.
    pub(super) count: usize,
}

impl<P, R> Ticket<P, R> {
    pub(super) fn new() -> Self {
        let state = TicketState {
            outcome: Outcome::Waiting,
            spent: Vec::new(),
            leader: None,
            gone: Vec::new(),
            may_ask: false,
            asleep: Vec::new(),
        };
        Self { state: Mutex::new(state), has_news: AtomicBool::new(false) }
    }

    /// Notes that there is an outcome or a leader.
    pub(super) fn tell(&self) {
        self.has_news.store(true, Ordering::Release);
    }

    /// Whether there may be an outcome or a leader.
    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Says what came of the batch, whose records are of no more use; returns whom to wake.
    pub(super) fn decide(&self, outcome: Outcome<P>, spent: Vec<R>) -> impl Iterator<Item = Thread> + use<P, R> {
        let mut ticket = self.lock();
        (ticket.outcome, ticket.spent) = (outcome, spent);
        let asleep = std::mem::take(&mut ticket.asleep);
        drop(ticket);
        self.tell();
        asleep.into_iter().map(|(_, thread)| thread)
    }

    /// Says that the batch is written, and nothing more; returns whom to wake, of those who wait for no more.
    pub(super) fn is_written(&self, placement: P, needs: &[Need]) -> impl Iterator<Item = Thread> + use<P, R> {
        let waits = |place: Option<usize>| place.and_then(|place| needs.get(place)) != Some(&Need::Written);
        let mut ticket = self.lock();
        ticket.outcome = Outcome::Written(placement);
        let (asleep, told): (Vec<_>, Vec<_>) =
            std::mem::take(&mut ticket.asleep).into_iter().partition(|(place, _)| waits(*place));
        ticket.asleep = asleep;
        drop(ticket);
        self.tell();
        told.into_iter().map(|(_, thread)| thread)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, TicketState<P, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Clone, R> TicketState<P, R> {
    /// The answer for a waiter, if there is one.
    pub(super) fn answer(&self, asked: Asked) -> Option<Result<P>> {
        match &self.outcome {
            Outcome::Done(placement) => Some(Ok(placement.clone())),
            Outcome::Written(placement) if asked.need == Need::Written => Some(Ok(placement.clone())),
            Outcome::Failed(cause) => Some(Err(cause.error())),
            Outcome::Owed(cause) if asked.count == 0 => Some(Err(cause.error())),
            Outcome::Owed(cause) => {
                let kind = ErrorKind::Unknown { lsn: asked.first.0 };
                Some(Err(Error::new(kind, format!("the log will write it when there is room: {}", cause.text))))
            }
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
