//! [`Worker`]: what a backend does behind its callers' backs, the urgent before the rest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// A piece of background work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// How soon a job is wanted; the higher, the sooner. Among equals, the one that was asked for first.
pub(crate) type JobUrgency = u8;

/// Runs jobs one after the other: on a thread of its own, or only when told to, so that a test decides what runs when.
///
/// The queue has no bound of its own; whoever submits looks at [`Worker::pending`]. A job that panics is reported and does
/// not take the others with it. Dropping the worker ends the running job first, and drops the jobs that have not begun.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Guards the queue; no job runs and no job is dropped under it.
    queue: Mutex<Queue>,
    /// Told of every change of the queue.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// By urgency, then by when they were asked for.
    jobs: BTreeMap<(Reverse<JobUrgency>, u64), Job>,
    asked: u64,
    running: bool,
    stopped: bool,
}

impl Worker {
    /// A worker with a thread called `name`.
    ///
    /// # Errors
    /// `Io` where the system gives no thread.
    pub(crate) fn threaded(name: &str) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || while of_thread.run_one(Wait::ForWork) {})
            .map_err(|source| Error::io(name, "start a thread", source))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A worker without a thread: jobs run inside [`Worker::run_pending`].
    pub(crate) fn inline() -> Self {
        Self { shared: Arc::default(), thread: None }
    }

    /// A worker of its own, with a thread if this one has one.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let threaded = self.thread.is_some().then(|| Self::threaded(name));
        match threaded {
            Some(Ok(worker)) => worker,
            Some(Err(error)) => {
                tracing::error!(%error, "no thread for maintenance: nobody does it by itself");
                Self::inline()
            }
            None => Self::inline(),
        }
    }

    /// Adds a job like any other. After [`Worker::stop`] it is dropped instead.
    pub(crate) fn submit(&self, job: Job) {
        self.submit_at(0, job);
    }

    /// Adds a job before all that are less urgent.
    pub(crate) fn submit_at(&self, urgency: JobUrgency, job: Job) {
        let mut queue = self.shared.lock();
        if queue.stopped {
            drop(queue);
            return drop(job);
        }
        let asked = queue.asked;
        queue.asked = asked.saturating_add(1);
        queue.jobs.insert((Reverse(urgency), asked), job);
        self.shared.changed.notify_all();
    }

    /// How many jobs have not ended yet.
    pub(crate) fn pending(&self) -> usize {
        let queue = self.shared.lock();
        queue.jobs.len() + usize::from(queue.running)
    }

    /// Whether a job waits that is as urgent as this, or more.
    pub(crate) fn has_waiting(&self, urgency: JobUrgency) -> bool {
        self.shared.lock().jobs.first_key_value().is_some_and(|((Reverse(first), _), _)| *first >= urgency)
    }

    /// Waits until nothing is pending; without a thread, runs what is pending. Not for use inside a job.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn run_pending(&self) {
        if self.thread.is_none() {
            while self.shared.run_one(Wait::Never) {}
            return;
        }
        let busy = |queue: &mut Queue| queue.running || (!queue.jobs.is_empty() && !queue.stopped);
        let waited = self.shared.changed.wait_while(self.shared.lock(), busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes no more jobs, forgets those that have not begun, and makes the thread end after the running one.
    pub(crate) fn stop(&self) {
        let mut queue = self.shared.lock();
        queue.stopped = true;
        let forgotten = std::mem::take(&mut queue.jobs);
        self.shared.changed.notify_all();
        drop(queue);
        drop(forgotten); // may run anybody's drop code, so not under the lock
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        let Some(thread) = self.thread.take() else { return };
        // The last job may be what held the last handle of the backend; a thread can't wait for itself.
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a background thread ended by a panic outside its jobs");
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Wait {
    ForWork,
    #[cfg(any(test, feature = "conformance"))]
    Never,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the next job; `false` where there is none (any more).
    fn run_one(&self, wait: Wait) -> bool {
        let mut queue = self.lock();
        if wait == Wait::ForWork {
            let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.stopped;
            queue = self.changed.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        }
        let Some((_, job)) = queue.jobs.pop_first() else { return false };
        queue.running = true;
        drop(queue);
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("a background job panicked");
        }
        self.lock().running = false;
        self.changed.notify_all();
        true
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_thread = self.thread.is_some();
        f.debug_struct("Worker")
            .field("pending", &self.pending())
            .field("has_thread", &has_thread)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn both() -> [Worker; 2] {
        [Worker::inline(), Worker::threaded("test").unwrap()]
    }

    #[test]
    fn jobs_run_in_order_and_a_panic_stops_only_itself() {
        for worker in both() {
            let (sender, receiver) = channel();
            for number in 0..5 {
                let sender = sender.clone();
                worker.submit(Box::new(move || {
                    assert_ne!(number, 2, "planted");
                    sender.send(number).unwrap();
                }));
            }
            worker.run_pending();
            assert_eq!(worker.pending(), 0);
            assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 3, 4]);
        }
    }

    #[test]
    fn what_is_urgent_comes_first() {
        let worker = Worker::inline();
        let (sender, receiver) = channel();
        for (urgency, number) in [(0, 1), (2, 2), (1, 3), (2, 4)] {
            let sender = sender.clone();
            worker.submit_at(urgency, Box::new(move || sender.send(number).unwrap()));
        }
        worker.run_pending();
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [2, 4, 3, 1]);
    }

    #[test]
    fn an_inline_worker_does_nothing_until_told() {
        let worker = Worker::inline();
        let (sender, receiver) = channel();
        worker.submit(Box::new(move || sender.send(()).unwrap()));
        assert_eq!(worker.pending(), 1);
        assert!(receiver.try_recv().is_err());
        worker.run_pending();
        assert!(receiver.try_recv().is_ok());
    }

    #[test]
    fn dropping_ends_the_running_job_and_drops_the_waiting_ones() {
        let worker = Worker::threaded("test").unwrap();
        let (started, has_started) = channel();
        let (release, released) = channel::<()>();
        let (done, is_done) = channel();
        let second = done.clone();
        worker.submit(Box::new(move || {
            started.send(()).unwrap();
            assert!(released.recv().is_err());
            done.send(1).unwrap();
        }));
        worker.submit(Box::new(move || second.send(2).unwrap()));
        has_started.recv().unwrap();
        worker.stop(); // the first job is still running, so the second never begins
        drop(release);
        drop(worker);
        assert_eq!(is_done.iter().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_job_may_hold_the_last_handle_of_its_own_worker() {
        let worker = Arc::new(Worker::threaded("test").unwrap());
        let (done, is_done) = channel();
        let held = Arc::clone(&worker);
        let (release, released) = channel::<()>();
        worker.submit(Box::new(move || {
            assert!(released.recv().is_err());
            drop(held);
            done.send(()).unwrap();
        }));
        drop(worker);
        drop(release);
        is_done.recv().unwrap();
    }
}
