//! [`Precedence`]: background writing lets commits go first.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Background writing waits for no longer than this before each piece that it makes durable, so that it goes on, if slowly, where
/// commits never stop.
const LONGEST_WAIT: Duration = Duration::from_millis(20);

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

    /// Waits until no commit is on its way, or for a moment.
    pub(crate) fn give_way(&self) {
        let waited = self.quiet.wait_timeout_while(self.lock(), LONGEST_WAIT, |committing| *committing > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
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

    #[test]
    fn whoever_gives_way_goes_on_when_the_last_commit_has_ended() {
        let precedence = Precedence::default();
        precedence.give_way(); // nobody is there
        let (first, second) = (precedence.go_first(), precedence.go_first());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| precedence.give_way());
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
        precedence.give_way();
    }
}
