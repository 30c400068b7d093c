//! [`Tenancy`]: the stay of one provider, and of the transactions it opened, in the process's index.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::below::SharedBelow;
use super::commit::ChangeSet;
use super::core::Core;
use super::transaction::Committer;
use crate::error::Result;
use crate::run::Run;
use crate::version::Version;

/// A provider and its transactions hold this, background jobs do not. So it ends with the last of their handles, and the next
/// provider of the store can take the generations over at once, whatever a job of this one is just doing.
#[derive(Debug)]
pub(super) struct Tenancy {
    pub(super) core: Arc<Core>,
    /// Large files that a transaction of this provider was the last to read, for a job to unmap. The job works under the lock, so that none is
    /// left when the provider has gone.
    last_reads: Arc<Mutex<Vec<Arc<Run>>>>,
}

impl Tenancy {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, last_reads: Arc::default() }
    }
}

fn lock(runs: &Mutex<Vec<Arc<Run>>>) -> MutexGuard<'_, Vec<Arc<Run>>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Committer for Tenancy {
    fn commit(&self, changes: ChangeSet<'_>) -> Result<Version> {
        let version = self.core.commit(&changes)?;
        self.core.fold_soon();
        if let Some(caretaker) = self.core.caretaker.get() {
            caretaker.committed(&self.core);
        }
        Ok(version)
    }

    fn let_go(&self, below: SharedBelow) {
        // A base that has been replaced is unmapped by whoever held it last: not while a commit's caller waits. Where the stack is not this
        // transaction's alone, as after a commit that failed, it still is somebody's.
        let last = if Arc::strong_count(&below) == 1 { below.last_reads() } else { Vec::new() };
        drop(below);
        if !last.is_empty() {
            lock(&self.last_reads).extend(last);
            let last_reads = Arc::clone(&self.last_reads);
            self.core.backend.worker().submit(Box::new(move || lock(&last_reads).clear()));
        }
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        lock(&self.last_reads).clear();
        self.core.leave();
        // Or the index would stay open, and its directory locked, for a moment after everything has been dropped.
        self.core.end_jobs();
    }
}
