//! [`Tenancy`]: the stay of one provider, and of the transactions it opened, in the process's index.

use std::sync::Arc;

use super::below::SharedBelow;
use super::commit::ChangeSet;
use super::core::Core;
use super::transaction::Committer;
use crate::error::Result;
use crate::version::Version;

/// A provider and its transactions hold this, background jobs do not. So it ends with the last of their handles, and the next
/// provider of the store can take the generations over at once, whatever a job of this one is just doing.
#[derive(Debug)]
pub(super) struct Tenancy {
    pub(super) core: Arc<Core>,
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
        // A base that has been replaced is unmapped by whoever held it last: not while a commit's caller waits.
        let last = below.last_reads();
        drop(below);
        if !last.is_empty() {
            self.core.backend.worker().submit(Box::new(move || drop(last)));
        }
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        self.core.leave();
        // Or the index would stay open, and its directory locked, for a moment after everything has been dropped.
        self.core.end_jobs();
    }
}
