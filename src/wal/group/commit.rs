//! Group commit: whoever comes first leads, writes for all who wait, and hands over.
//!
//! ```text
//!   alone      lock ─ take the sink ─ unlock ─ write ─ sync ─ lock ─ give it back          no copy, no waiting, no other thread
//!   together   followers put their records into the batch at the end of the queue and park
//!              the leader takes the batch at the front, writes and syncs it, acknowledges it, and appoints a follower of the next one
//! ```
//! LSNs are given out under the lock, so their order is the order of the queue, of the file and of the acknowledgements. The next batch
//! gathers while the current one syncs. A leader waits for more followers only if there were more a moment ago, and never for long;
//! the one who completes them leads instead, since it runs already. Who asked for no sync is not appointed where others wait for one.
//!
//! A batch that did not fit on a full disk is lost and its LSNs are given out again, unless somebody has left with one of them at the deadline:
//! then the batch is owed, and whoever comes next writes it first.
//!
//! This file knows nothing of files. Its locks and threads are those of `primitives`, which the schedule tests replace.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::contract::{Failed, Need, Sink};
use super::primitives::{
    AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PATIENCE, Thread, current, park, park_timeout, yield_now,
};
use super::queue::{Batch, Pace, State, Step};
use super::record::Lsn;
use super::ticket::{Asked, Outcome, Ticket};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// A batch takes in no more records than make this many bytes, so that it is written in one go and nobody waits long behind it. What one writer
/// writes is always one batch, however large.
const BATCH_BYTES: u64 = 8 << 20;
/// After this many doublings a leader that waited in vain tries again.
const MOST_FRUITLESS: u32 = 8;

/// Where a writer's records went.
#[derive(Debug, Clone)]
pub(in crate::wal) struct Written<P> {
    /// The LSN of the first one.
    pub(in crate::wal) first: Lsn,
    /// Where their batch went.
    pub(in crate::wal) placement: P,
    /// Bytes of the batch before them.
    pub(in crate::wal) before: u64,
}

/// The queue, the sink, and who leads. The one lock guards all of it; under it tickets are locked, and the budget where
/// somebody waits for the memory of records that are freed.
pub(in crate::wal) struct Group<S: Sink> {
    state: Mutex<State<S>>,
    /// Told at the end of every batch.
    changed: Condvar,
    clock: Arc<dyn Clock>,
    longest_gather: Duration,
    /// Whether several writers were there at the end of the last batch: a look without the lock, for those who will queue up anyway.
    is_crowded: AtomicBool,
}

impl<S: Sink> Group<S> {
    /// A queue before `sink`; the next record gets the LSN `next`, everything before it is durable.
    pub(in crate::wal) fn new(sink: S, next: Lsn, clock: Arc<dyn Clock>, longest_gather: Duration) -> Self {
        let done = next.previous();
        let state = State {
            sink: Some(sink),
            gathering: None,
            queue: VecDeque::new(),
            next,
            written: done,
            durable: done,
            stopped: None,
            closed: false,
            ended: false,
            watching: 0,
            pace: Pace::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock,
            longest_gather,
            is_crowded: AtomicBool::new(false),
        }
    }

    /// Writes borrowed records if nobody else is writing; `None`, and nothing done, where the caller has to queue up.
    pub(in crate::wal) fn try_alone(
        &self,
        records: &[S::Record<'_>],
        need: Need,
    ) -> Option<Result<Written<S::Placement>>> {
        self.try_alone_before(records, need, false)
    }

    /// As [`try_alone`](Self::try_alone); one that is `hurried` does so even if others are likely to join.
    pub(in crate::wal) fn try_alone_before(
        &self,
        records: &[S::Record<'_>],
        need: Need,
        hurried: bool,
    ) -> Option<Result<Written<S::Placement>>> {
        if !hurried && need != Need::Written && self.is_crowded.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = match self.enter() {
            Ok(state) => state,
            Err(error) => return Some(Err(error)),
        };
        if !state.queue.is_empty() {
            return None;
        }
        let sink = state.sink.take()?;
        let first = state.give_out(records.len());
        drop(state);
        let ran = self.run(sink, first, records, need != Need::Written, None);
        let (state, answer) = self.finish(ran, first, records.len(), need != Need::Written, None);
        self.go_on(state);
        Some(answer.map(|placement| Written { first, placement, before: 0 }))
    }

    /// Puts records into the queue and waits for them, or leads.
    ///
    /// # Errors
    /// `Unknown` where `deadline`, a time on the clock, came before the outcome; `Busy` if there were no records.
    pub(in crate::wal) fn enqueue(
        &self,
        records: impl IntoIterator<Item = S::Record<'static>, IntoIter: ExactSizeIterator> + AsRef<[S::Record<'static>]>,
        need: Need,
        deadline: Option<Duration>,
    ) -> Result<Written<S::Placement>> {
        let bytes: u64 = records.as_ref().iter().map(S::bytes).sum();
        let records = records.into_iter();
        let mut state = self.enter()?;
        let count = records.len();
        let first = state.give_out(count);
        let joins =
            need != Need::OwnSync && state.queue.back().is_some_and(|b| !b.alone && b.bytes + bytes <= BATCH_BYTES);
        if !joins {
            let expected = state.pace.expected;
            state.queue.push_back(Batch {
                first,
                records: Vec::with_capacity(expected),
                bytes: 0,
                syncs: false,
                flushes: false,
                tells_early: false,
                alone: need == Need::OwnSync,
                ticket: Arc::new(Ticket::new()),
                needs: Vec::with_capacity(expected),
                owed: None,
            });
        }
        let Some(batch) = state.queue.back_mut() else { return Err(Error::invalid("the queue lost a batch")) };
        let (place, before) = (batch.needs.len(), batch.bytes);
        batch.syncs |= need != Need::Written;
        batch.flushes |= count == 0 && need == Need::Written;
        batch.tells_early |= count > 0 && need == Need::Written;
        batch.bytes += bytes;
        batch.records.extend(records);
        batch.needs.push(need);
        let ticket = Arc::clone(&batch.ticket);
        if state.leads(place, need) {
            self.lead(state);
        } else {
            let completes = state.waiting() >= state.pace.expected;
            // Only who waits for this very sync leads it.
            let leads = completes && need == Need::Durable && state.queue.len() == 1;
            if let Some((sink, _)) = state.gathering.take_if(|_| leads) {
                state.pace.fruitless = 0;
                let after = self.write_front(state, sink);
                self.go_on(after);
            } else {
                if let Some((_, leader)) = state.gathering.as_ref().filter(|_| completes) {
                    leader.unpark();
                }
                drop(state);
            }
        }
        let began = (count == 0).then(|| self.clock.elapsed());
        let waiter = Waiter { ticket, place, asked: Asked { need, first, count }, began };
        self.wait(&waiter, deadline).map(|placement| Written { first, placement, before })
    }

    /// Everything up to this LSN is durable.
    pub(in crate::wal) fn durable(&self) -> Lsn {
        self.lock().durable
    }

    /// The newest LSN that the system has.
    pub(in crate::wal) fn written(&self) -> Lsn {
        self.lock().written
    }

    /// Waits until a batch ends, but no longer than `most`.
    pub(in crate::wal) fn wait_for_change(&self, most: Duration) {
        let mut state = self.lock();
        state.watching += 1;
        let (mut state, _) = self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
        state.watching -= 1;
    }

    /// Refuses later writes, waits for those in the queue, and ends the sink. Again: waits until that is done.
    pub(in crate::wal) fn close(&self, end: impl FnOnce(&mut S) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        state.watching += 1;
        if std::mem::replace(&mut state.closed, true) {
            // Whoever closes next may give up what the log holds: not before it has ended.
            while !state.ended {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.watching -= 1;
            return Ok(());
        }
        let mut has_tried = false;
        while !state.ended && (state.sink.is_none() || !state.queue.is_empty()) {
            if state.owes().is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if std::mem::replace(&mut has_tried, true) {
                state.queue.clear(); // its writers have gone; never durable is what they will hear
            } else {
                self.lead(state);
                state = self.lock();
            }
        }
        state.watching -= 1;
        let Some(mut sink) = state.sink.take() else { return state.check() }; // a panic took it
        drop(state);
        let ended = catch_unwind(AssertUnwindSafe(|| end(&mut sink)));
        let mut state = self.lock();
        if matches!(ended, Ok(Ok(()))) && state.stopped.is_none() {
            state.durable = state.written;
        }
        state.sink = Some(sink);
        state.ended = true;
        self.changed.notify_all();
        // Who closes a log that has stopped hears of it here, if nowhere else.
        let whole = if state.stopped.is_some() { state.check() } else { Ok(()) };
        drop(state);
        ended.unwrap_or_else(|panic| resume_unwind(panic)).and(whole)
    }

    /// The queue, for one more writer: open, and what is owed is written.
    fn enter(&self) -> Result<MutexGuard<'_, State<S>>> {
        let mut state = self.lock();
        state.check()?;
        if state.owes().is_some() {
            self.lead(state);
            state = self.lock();
            state.check()?;
            if let Some(cause) = state.owes() {
                return Err(cause.error());
            }
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer whom this thread is waits for its batch, and leads it if it is appointed.
    fn wait(&self, waiter: &Waiter<S>, deadline: Option<Duration>) -> Result<S::Placement> {
        let mut patience = PATIENCE;
        let mut is_listed = false;
        loop {
            if patience > 0 && !waiter.ticket.has_news() {
                patience -= 1;
                yield_now();
                continue;
            }
            let mut ticket = waiter.ticket.lock();
            if let Some(answer) = ticket.answer(waiter.asked) {
                let spent = ticket.spent.pop();
                drop(ticket);
                drop(spent);
                return answer;
            }
            if ticket.leader == Some(waiter.place) {
                drop(ticket);
                self.lead_if_appointed(waiter);
                patience = PATIENCE;
                continue;
            }
            if patience > 0 {
                drop(ticket);
                patience -= 1;
                yield_now();
                continue;
            }
            if !std::mem::replace(&mut is_listed, true) {
                ticket.asleep.push((Some(waiter.place), current()));
            }
            drop(ticket);
            match deadline.map(|deadline| deadline.saturating_sub(self.clock.elapsed())) {
                None => park(),
                Some(left) if !left.is_zero() => park_timeout(left),
                Some(_) => {
                    if let Some(error) = self.give_up(waiter) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Leads, unless somebody else has come to do it meanwhile: leaders change under the lock.
    fn lead_if_appointed(&self, waiter: &Waiter<S>) {
        let state = self.lock();
        let appointed = waiter.ticket.lock().leader.take_if(|leader| *leader == waiter.place);
        if appointed.is_some() {
            self.lead(state);
        }
    }

    /// Leaves the batch to the others, unless the outcome is there or this thread has to lead.
    fn give_up(&self, waiter: &Waiter<S>) -> Option<Error> {
        // Outcomes and leaders are decided under this lock.
        let state = self.lock();
        let mut ticket = waiter.ticket.lock();
        if ticket.answer(waiter.asked).is_some() || ticket.leader == Some(waiter.place) {
            return None;
        }
        ticket.gone.push(waiter.place);
        ticket.may_ask |= waiter.asked.count > 0;
        ticket.asleep.retain(|(place, _)| *place != Some(waiter.place));
        drop(ticket);
        drop(state);
        let kind = match waiter.began {
            None => ErrorKind::Unknown { lsn: waiter.asked.first.0 },
            Some(began) => {
                let ms = self.clock.elapsed().saturating_sub(began).as_millis();
                ErrorKind::Busy { waited_ms: u64::try_from(ms).unwrap_or(u64::MAX) }
            }
        };
        Some(Error::new(kind, "the deadline came before the log had written the records"))
    }

    /// Writes the batch at the front, and those behind it whose writers have all gone.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State<S>>) {
        while let Some(sink) = state.sink.take() {
            let (gathered, Some(sink)) = self.gather(state, sink) else { return };
            match self.write_front(gathered, sink) {
                After::Orphans(guard) => state = guard,
                After::Done => return,
            }
        }
    }

    /// Writes the batch at the front.
    fn write_front<'a>(&'a self, mut state: MutexGuard<'a, State<S>>, sink: S) -> After<'a, S> {
        let Some(batch) = state.queue.pop_front() else {
            state.sink = Some(sink);
            return After::Done;
        };
        drop(state);
        let ran = self.run(sink, batch.first, &batch.records, batch.syncs, Some(&batch));
        let (first, count, syncs) = (batch.first, batch.records.len(), batch.syncs);
        // The answer is in the ticket.
        self.finish(ran, first, count, syncs, Some(batch)).0
    }

    /// Goes on with batches that nobody waits for any more.
    fn go_on<'a>(&'a self, after: After<'a, S>) {
        if let After::Orphans(state) = after {
            self.lead(state);
        }
    }

    /// Waits for as many writers as there were a moment ago, if that is likely to pay. Comes back without the sink where the last of them has
    /// taken it: that one runs already, and a leader would have to be woken first.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State<S>>, sink: S) -> (MutexGuard<'a, State<S>>, Option<S>) {
        // Where syncs are fast, waking many writers takes longer than a sync, and a group of a few costs more than the wait for all.
        let most = self.longest_gather.min(state.pace.sync_time * 4);
        let before = state.waiting();
        let pays = state.queue.len() == 1 && !most.is_zero() && before < state.pace.expected;
        let Some(batch) = state.queue.front().filter(|batch| pays && batch.syncs && !batch.alone) else {
            return (state, Some(sink));
        };
        if state.pace.skip > 0 {
            state.pace.skip -= 1;
            return (state, Some(sink));
        }
        let me = current();
        batch.ticket.lock().asleep.push((None, me.clone()));
        state.gathering = Some((sink, me.clone()));
        let deadline = self.clock.elapsed() + most;
        loop {
            let left = deadline.saturating_sub(self.clock.elapsed());
            if left.is_zero() || state.waiting() >= state.pace.expected {
                break;
            }
            drop(state);
            park_timeout(left);
            state = self.lock();
            if state.gathering.as_ref().is_none_or(|(_, leader)| leader.id() != me.id()) {
                return (state, None);
            }
        }
        if let Some(batch) = state.queue.front() {
            batch.ticket.lock().asleep.retain(|(place, _)| place.is_some());
        }
        let sink = state.gathering.take().map(|(sink, _)| sink);
        if state.waiting() > before {
            state.pace.fruitless = 0;
        } else {
            state.pace.fruitless = (state.pace.fruitless + 1).min(MOST_FRUITLESS);
            state.pace.skip = 1 << state.pace.fruitless;
        }
        (state, sink)
    }

    /// Writes a batch and syncs it if it must. A panic stops the log as a failure does, so that nobody waits for a thread that is no more; what the
    /// sink was doing is not known then, and it is given up.
    fn run(&self, mut sink: S, first: Lsn, records: &[S::Record<'_>], syncs: bool, batch: Option<&Batch<S>>) -> Ran<S> {
        match catch_unwind(AssertUnwindSafe(|| self.steps(&mut sink, first, records, syncs, batch))) {
            Ok(outcome) => Ran { sink: Some(sink), outcome, panic: None },
            Err(panic) => {
                let error = Error::new(ErrorKind::Poisoned, "a thread panicked while it wrote");
                Ran { sink: None, outcome: Err(Step::Write(Failed::for_good(error))), panic: Some(panic) }
            }
        }
    }

    fn steps(
        &self,
        sink: &mut S,
        first: Lsn,
        records: &[S::Record<'_>],
        syncs: bool,
        batch: Option<&Batch<S>>,
    ) -> std::result::Result<Stepped<S::Placement>, Step> {
        let mut placement = S::Placement::default();
        if !records.is_empty() || !syncs {
            placement = sink.write(first, records).map_err(Step::Write)?;
        }
        // Somebody asked for what is held back, and must not be told before it is with the system.
        if batch.is_some_and(|batch| batch.flushes) && (syncs || !records.is_empty()) {
            // The records are written by now, so this is no failure after which they could be written again.
            sink.write(first, &[]).map_err(|failed| Step::Write(Failed { stops: true, ..failed }))?;
        }
        if !syncs {
            return Ok(Stepped { placement, sync_time: None });
        }
        if let Some(batch) = batch.filter(|batch| batch.needs.contains(&Need::Written)) {
            let told = batch.ticket.is_written(placement.clone(), &batch.needs);
            told.for_each(|thread| thread.unpark());
        }
        let start = self.clock.elapsed();
        let moved = sink.sync(first, records).map_err(Step::Sync)?;
        let took = self.clock.elapsed().saturating_sub(start);
        Ok(Stepped { placement: moved.unwrap_or(placement), sync_time: Some(took) })
    }

    /// Takes down the outcome, gives the sink back, tells the writers, and appoints the next leader. Goes on with a panic.
    fn finish(
        &self,
        ran: Ran<S>,
        first: Lsn,
        count: usize,
        syncs: bool,
        batch: Option<Batch<S>>,
    ) -> (After<'_, S>, Result<S::Placement>) {
        let mut state = self.lock();
        let mut told: Vec<Thread> = Vec::new();
        let writers = batch.as_ref().map_or(1, |batch| batch.needs.len());
        let answer = match ran.outcome {
            Ok(Stepped { placement, sync_time }) => {
                if let Some(took) = sync_time {
                    state.pace.sync_time = (state.pace.sync_time * 7 + took) / 8;
                }
                state.written = state.written.max(first.plus(count as u64).previous());
                if syncs {
                    state.durable = state.durable.max(state.written);
                }
                if let Some(batch) = batch {
                    let spent = state.spent(batch.records);
                    told.extend(batch.ticket.decide(Outcome::Done(placement.clone()), spent));
                }
                Ok(placement)
            }
            Err(step) => Err(state.fail(first, count, step, batch, &mut told)),
        };
        state.pace.expected = writers + state.waiting();
        self.is_crowded.store(state.pace.expected > 1, Ordering::Relaxed);
        state.ended |= ran.sink.is_none();
        state.sink = ran.sink;
        // What is owed waits for the next writer: until then there is hardly more room.
        let orphans = (answer.is_ok() || state.owes().is_none()) && state.appoint();
        // It is a system call even if nobody waits, as much as a whole unsynced write costs.
        if state.watching > 0 {
            self.changed.notify_all();
        }
        let after = if orphans {
            After::Orphans(state)
        } else {
            drop(state);
            After::Done
        };
        told.iter().for_each(Thread::unpark);
        if let Some(panic) = ran.panic {
            resume_unwind(panic);
        }
        (after, answer)
    }
}

/// A batch that has been run.
struct Ran<S: Sink> {
    sink: Option<S>,
    outcome: std::result::Result<Stepped<S::Placement>, Step>,
    panic: Option<Box<dyn Any + Send>>,
}

/// What a batch came to.
struct Stepped<P> {
    placement: P,
    sync_time: Option<Duration>,
}

/// What is left to do when a batch has ended.
enum After<'a, S: Sink> {
    /// The next batch has writers, but they have all gone.
    Orphans(MutexGuard<'a, State<S>>),
    Done,
}

/// A writer in the queue.
struct Waiter<S: Sink> {
    ticket: Arc<Ticket<S::Placement, S::Record<'static>>>,
    place: usize,
    asked: Asked,
    /// Since when it waits, if it has no record.
    began: Option<Duration>,
}

impl<S: Sink> fmt::Debug for Group<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").finish_non_exhaustive()
    }
}
