//! Kills this very process, hard, at a random moment: while it works on a batch or while it commits one.
//!
//! SIGKILL, because nothing can catch it: no destructor runs, no buffer is flushed. What the kernel has, it keeps.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Failure;

/// A process with this armed dies.
#[derive(Debug)]
pub(crate) struct Bomb {
    /// Held so that the thread's wait ends by time alone.
    armed: Sender<()>,
    thread: JoinHandle<()>,
}

impl Bomb {
    /// Lets the process die at a random moment within the time that a batch takes, and a bit more, from now.
    pub(crate) fn arm(batch: Duration) -> Result<Self, Failure> {
        // A new `RandomState` has a new seed; the crash is meant to differ from run to run.
        let window_micros = u64::try_from(batch.as_micros()).unwrap_or(u64::MAX).saturating_mul(5) / 4;
        let fuse = Duration::from_micros(RandomState::new().hash_one(window_micros) % window_micros.max(1));
        eprintln!("flights: this process dies in {} µs", fuse.as_micros());
        let (armed, waiting) = mpsc::channel::<()>();
        let burn = move || {
            if waiting.recv_timeout(fuse) == Err(RecvTimeoutError::Timeout) {
                die();
            }
        };
        let thread = thread::Builder::new()
            .name("bomb".into())
            .spawn(burn)
            .map_err(|e| Failure::new(format!("could not start a thread: {e}")))?;
        Ok(Self { armed, thread })
    }

    /// Waits for the end; for a job that is done before it.
    pub(crate) fn wait(self) -> Failure {
        let ended = self.thread.join();
        drop(self.armed);
        Failure::new(format!("the process outlived its bomb: {ended:?}"))
    }
}

fn die() {
    // Can only fail for a process that is not ours.
    if rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).is_err() {
        std::process::abort();
    }
}
