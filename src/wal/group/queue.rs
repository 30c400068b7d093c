//! The queue of the group commit: batches, their LSNs, and what becomes of them when one fails.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::contract::{Failed, Need, Sink};
use super::primitives::Thread;
use super::record::Lsn;
use super::ticket::{Cause, Outcome, Ticket};
use crate::error::{Error, ErrorKind, Result};

pub(super) struct State<S: Sink> {
    /// `None` while somebody leads or waits for more writers. Where it is here, the queue is empty, or its first batch has an appointed leader,
    /// or all of it is owed.
    pub(super) sink: Option<S>,
    /// The sink while a leader waits for more writers, and who that is. The writer who completes the group takes it, and leads instead.
    pub(super) gathering: Option<(S, Thread)>,
    pub(super) queue: VecDeque<Batch<S>>,
    pub(super) next: Lsn,
    pub(super) written: Lsn,
    pub(super) durable: Lsn,
    /// Why nothing is written any more.
    pub(super) stopped: Option<Cause>,
    pub(super) closed: bool,
    /// Closing is over.
    pub(super) ended: bool,
    /// Threads that wait for the end of a batch, whose it may be.
    pub(super) watching: usize,
    pub(super) pace: Pace,
}

/// When a leader waits for followers.
#[derive(Default)]
pub(super) struct Pace {
    /// Writers that were there at once a moment ago.
    pub(super) expected: usize,
    pub(super) fruitless: u32,
    pub(super) skip: u32,
    /// A running mean.
    pub(super) sync_time: Duration,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, asked in one place")]
pub(super) struct Batch<S: Sink> {
    pub(super) first: Lsn,
    pub(super) records: Vec<S::Record<'static>>,
    pub(super) bytes: u64,
    pub(super) syncs: bool,
    /// Whether what the sink holds back has to be written with it.
    pub(super) flushes: bool,
    /// Whether somebody is told of an LSN of it before the sync.
    pub(super) tells_early: bool,
    /// Whether nobody else may join.
    pub(super) alone: bool,
    pub(super) ticket: Arc<Ticket<S::Placement, S::Record<'static>>>,
    /// What its writers wait for, in the order in which they came; each knows its place.
    pub(super) needs: Vec<Need>,
    /// Why it could not be written, where somebody has left with an LSN of it: then it is owed, and written before whatever comes next.
    pub(super) owed: Option<Cause>,
}

impl<S: Sink> Batch<S> {
    /// Whether somebody has left with an LSN of it, and may ask for that.
    fn may_ask(&self) -> bool {
        self.owed.is_some() || self.ticket.lock().may_ask
    }
}

/// Which step of a batch failed.
pub(super) enum Step {
    Write(Failed),
    Sync(Failed),
}

impl<S: Sink> State<S> {
    pub(super) fn check(&self) -> Result<()> {
        if let Some(cause) = &self.stopped {
            return Err(Error::new(ErrorKind::Poisoned, format!("the log has stopped: {}", cause.text)));
        }
        if self.closed { Err(Error::invalid("the log is closed")) } else { Ok(()) }
    }

    pub(super) fn give_out(&mut self, count: usize) -> Lsn {
        let first = self.next;
        self.next = first.plus(count as u64);
        first
    }

    /// Writers in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.queue.iter().map(|batch| batch.needs.len()).sum()
    }

    /// The records of a batch that has ended, for their writers to free. Where somebody may be waiting for their memory, they go at once.
    pub(super) fn spent(&self, records: Vec<S::Record<'static>>) -> Vec<S::Record<'static>> {
        if self.watching > 0 { Vec::new() } else { records }
    }

    /// What a failed batch means for those behind it and for the LSNs.
    pub(super) fn fail(
        &mut self,
        first: Lsn,
        count: usize,
        step: Step,
        batch: Option<Batch<S>>,
        told: &mut Vec<Thread>,
    ) -> Error {
        let (failed, was_written) = match step {
            Step::Write(failed) => (failed, false),
            Step::Sync(failed) => (failed, true),
        };
        let cause = Cause::of(&failed.error);
        let mut lost: Vec<Batch<S>> = batch.into_iter().collect();
        if was_written {
            // The records are in the file, and those who only asked for that were told so: their LSNs stay theirs.
            self.written = self.written.max(first.plus(count as u64).previous());
        } else {
            // Nobody was told anything about these LSNs, so they are given out again.
            self.next = first;
            lost.extend(self.queue.drain(..));
            if matches!(failed.error.kind(), ErrorKind::DiskFull { .. }) && !failed.stops {
                self.owe(&mut lost, &cause, told);
            }
        }
        // Somebody will ask whether an LSN of such a batch is durable. It may never be another record's, and nothing behind it become durable.
        let may_ask = |batch: &Batch<S>| batch.may_ask() || (was_written && batch.tells_early);
        if failed.stops || lost.iter().any(may_ask) {
            lost.extend(self.queue.drain(..));
            self.stopped.get_or_insert_with(|| cause.clone());
        }
        for batch in lost {
            let spent = self.spent(batch.records);
            told.extend(batch.ticket.decide(Outcome::Failed(cause.clone()), spent));
        }
        cause.error()
    }

    /// Keeps those of the batches that did not fit on a full disk whose LSNs somebody has left with, and those before them: their records
    /// keep their LSNs and are written when there is room. An LSN of a lone writer before them is nobody's then.
    fn owe(&mut self, lost: &mut Vec<Batch<S>>, cause: &Cause, told: &mut Vec<Thread>) {
        let kept = lost.iter().rposition(Batch::may_ask).map_or(0, |place| place + 1);
        for mut batch in lost.drain(..kept) {
            self.next = batch.first.plus(batch.records.len() as u64);
            told.extend(batch.ticket.decide(Outcome::Owed(cause.clone()), Vec::new()));
            batch.needs.clear();
            batch.owed = Some(cause.clone());
            batch.alone = true;
            self.queue.push_back(batch);
        }
    }

    /// Why the batch at the front could not be written before, if nobody is about to try again.
    pub(super) fn owes(&self) -> Option<&Cause> {
        let front = self.queue.front().filter(|_| self.sink.is_some());
        front.and_then(|batch| batch.owed.as_ref())
    }

    /// Whether the newest writer, at `place` of the last batch, leads at once: as the first, or as one who waits for a sync where somebody was
    /// appointed who does not.
    pub(super) fn leads(&self, place: usize, need: Need) -> bool {
        let only = self.queue.front().filter(|_| self.sink.is_some() && self.queue.len() == 1);
        let Some(batch) = only else { return false };
        let asked_for_none = |leader: &mut usize| batch.needs.get(*leader) == Some(&Need::Written);
        place == 0 || (need != Need::Written && batch.ticket.lock().leader.take_if(asked_for_none).is_some())
    }

    /// Says who leads the batch at the front; true where all its writers have gone.
    pub(super) fn appoint(&mut self) -> bool {
        let Some(batch) = self.queue.front() else { return false };
        let mut ticket = batch.ticket.lock();
        let staying = || batch.needs.iter().enumerate().filter(|(place, _)| !ticket.gone.contains(place));
        // Who asked for no sync has its answer before it, unless nobody else is there to do it.
        let waits = staying().find(|(_, need)| **need != Need::Written).or_else(|| staying().next());
        let staying = waits.map(|(place, _)| place);
        ticket.leader = staying;
        // It stays in the list: somebody else may lead before it is awake.
        let asleep = ticket.asleep.iter().find(|(place, _)| staying.is_some() && *place == staying);
        let leader = asleep.map(|(_, thread)| thread.clone());
        drop(ticket);
        batch.ticket.tell();
        if let Some(thread) = leader {
            thread.unpark();
        }
        staying.is_none()
    }
}
