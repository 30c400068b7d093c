//! [`Precedence`]: background writing lets commits go first.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Background writing waits for no longer than this for each piece that it makes durable, so that it goes on, if slowly, where commits
/// never stop.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// How long a piece of background writing may still wait for commits.
#[derive(Debug)]
pub(crate) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(LONGEST_WAIT)
    }
}

/// Who makes something durable right now: a disk takes the pieces in turns, and the journal of a file system all of them together, so
/// that a commit whose sync meets those of a snapshot and two merges waits for all of these.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    /// How many commits are on their way. Guards nothing else, and nothing is called under it.
    committing: Mutex<usize>,
    /// Told when there are none.
    quiet: Condvar,
}

/// A commit on its way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Committing<'p> {
    of: &'p Precedence,
}

impl Precedence {
    /// A commit begins.
    pub(crate) fn go_first(&self) -> Committing<'_> {
        let mut committing = self.lock();
        *committing = committing.saturating_add(1);
        Committing { of: self }
    }

    /// Waits until no commit is on its way, or until the patience is at its end.
    pub(crate) fn give_way(&self, patience: &mut Patience, clock: &dyn Clock) {
        if patience.0.is_zero() {
            return;
        }
        let began = clock.elapsed();
        let committing = self.lock();
        let waited = self.quiet.wait_timeout_while(committing, patience.0, |committing| *committing > 0);
        let (committing, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(committing);
        let left = patience.0.saturating_sub(clock.elapsed().saturating_sub(began));
        patience.0 = if timeout.timed_out() { Duration::ZERO } else { left };
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.committing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let mut committing = self.of.lock();
        *committing = committing.saturating_sub(1);
        if *committing == 0 {
            self.of.quiet.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn whoever_gives_way_goes_on_when_the_last_commit_has_ended() {
        let precedence = Precedence::default();
        precedence.give_way(&mut Patience::default(), &SystemClock::new()); // nobody is there
        let (first, second) = (precedence.go_first(), precedence.go_first());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| precedence.give_way(&mut Patience::default(), &SystemClock::new()));
            drop(first);
            drop(second);
            waiting.join().unwrap();
        });
        assert_eq!(*precedence.lock(), 0);
    }

    #[test]
    fn a_commit_that_never_ends_holds_nobody_up_for_good() {
        let precedence = Precedence::default();
        let _commit = precedence.go_first();
        let mut patience = Patience::default();
        precedence.give_way(&mut patience, &SystemClock::new());
        assert!(patience.0.is_zero());
        precedence.give_way(&mut patience, &SystemClock::new());
    }
}
