//! The writer slot of a store: one transaction at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// One writer at a time; the others wait until a deadline.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Whether the slot is taken. Nothing else is locked under it.
    taken: Mutex<bool>,
    freed: Condvar,
}

/// The taken slot; dropping it lets the next writer in.
#[derive(Debug)]
pub(super) struct SlotGuard(Arc<Slot>);

impl Slot {
    /// Takes the slot, waiting at most `deadline`.
    ///
    /// # Errors
    /// `Busy` where it was still taken then.
    pub(super) fn take(self: &Arc<Self>, deadline: Duration) -> Result<SlotGuard> {
        // The lock guards one bool, which is right whatever happened to a thread that held it.
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, wait) =
            self.freed.wait_timeout_while(taken, deadline, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() && *taken {
            let waited_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
            let context = "another transaction on this store is still open";
            return Err(Error::new(ErrorKind::Busy { waited_ms }, context));
        }
        *taken = true;
        Ok(SlotGuard(Arc::clone(self)))
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}
