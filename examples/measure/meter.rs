//! Watches the memory of this process from a thread of its own.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::kernel::held;

/// How often the memory is looked at. A look takes some 20 µs.
const SAMPLE: Duration = Duration::from_millis(4);
/// Who accounts for memory is asked at every so many looks: it may have to take locks for the answer.
const LOOKS_TO_ASK: u32 = 8;

/// The most that was seen of each, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the unit is part of a name")]
pub(crate) struct Peak {
    pub(crate) anonymous_bytes: u64,
    pub(crate) mapped_bytes: u64,
    /// What the one who accounts for memory said.
    pub(crate) accounted_bytes: u64,
    /// Anonymous memory above what was accounted for at the same moment.
    pub(crate) unaccounted_bytes: u64,
}

/// Says how much memory it accounts for, in bytes.
pub(crate) type Accounts = Box<dyn Fn() -> u64 + Send>;

/// The thread that watches.
pub(crate) struct Meter {
    watched: Arc<Mutex<Watched>>,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Watched {
    peak: Peak,
    accounts: Option<Accounts>,
    looks: u32,
}

impl Watched {
    fn look(&mut self) {
        let now = held();
        self.peak.anonymous_bytes = self.peak.anonymous_bytes.max(now.anonymous_bytes);
        self.peak.mapped_bytes = self.peak.mapped_bytes.max(now.mapped_bytes);
        if self.looks.is_multiple_of(LOOKS_TO_ASK)
            && let Some(accounts) = &self.accounts
        {
            let accounted = accounts();
            self.peak.accounted_bytes = self.peak.accounted_bytes.max(accounted);
            let unaccounted = now.anonymous_bytes.saturating_sub(accounted);
            self.peak.unaccounted_bytes = self.peak.unaccounted_bytes.max(unaccounted);
        }
        self.looks = self.looks.wrapping_add(1);
    }
}

impl Meter {
    /// Starts watching.
    ///
    /// # Errors
    /// Fails where the system gives no thread.
    pub(crate) fn start() -> io::Result<Self> {
        let watched = Arc::new(Mutex::new(Watched::default()));
        let (stop, stopped) = mpsc::channel::<()>();
        let seen = Arc::clone(&watched);
        let watch = move || {
            while stopped.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).look();
            }
        };
        let thread = thread::Builder::new().name("memory-meter".into()).spawn(watch)?;
        Ok(Self { watched, stop: Some(stop), thread: Some(thread) })
    }

    /// Asks `accounts` from now on, or nobody.
    pub(crate) fn ask(&self, accounts: Option<Accounts>) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).accounts = accounts;
    }

    /// The peak so far.
    pub(crate) fn peak(&self) -> Peak {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.look();
        watched.peak
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_meter_sees_memory_that_is_used() {
        let meter = Meter::start().unwrap();
        let before = meter.peak().anonymous_bytes;
        let used = vec![1_u8; 64 << 20];
        let after = meter.peak().anonymous_bytes;
        assert!(used.iter().all(|byte| *byte == 1) && after >= before + (60 << 20), "{before} {after}");
    }

    #[test]
    fn what_nobody_accounts_for_is_the_difference() {
        let meter = Meter::start().unwrap();
        meter.ask(Some(Box::new(|| 1)));
        meter.watched.lock().unwrap().looks = 0;
        let peak = meter.peak();
        assert_eq!(peak.accounted_bytes, 1);
        assert!(peak.unaccounted_bytes > 0 && peak.unaccounted_bytes < peak.anonymous_bytes.max(2));
    }
}
