//! [`Unpublished`]: the temporaries that this provider is writing, so that it does not sweep them itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::TemporaryName;
use crate::checkpoint::PendingFile;
use crate::error::Result;
use crate::fs::{PublishError, WriteFile};
use crate::version::RunId;

/// The ids of the temporaries that are being written. A snapshot of a version keeps that version's epoch, however many epochs
/// its provider has claimed since: by its name alone it looks like what a fenced writer left.
#[derive(Debug, Clone, Default)]
pub(super) struct Unpublished {
    /// As many as files are being written. Nothing is called under it.
    ids: Arc<Mutex<BTreeSet<RunId>>>,
}

impl Unpublished {
    /// Notes `temporary` and begins it with `create`.
    pub(super) fn begin(
        &self,
        temporary: &TemporaryName,
        create: impl FnOnce() -> Result<Box<dyn PendingFile>>,
    ) -> Result<Box<dyn PendingFile>> {
        self.lock().insert(temporary.id);
        let noted = Noted { all: self.clone(), id: temporary.id };
        Ok(Box::new(Tracked { file: create()?, _noted: noted }))
    }

    /// Whether `temporary` is being written here right now.
    pub(super) fn has(&self, temporary: &TemporaryName) -> bool {
        self.lock().contains(&temporary.id)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        // Every change is one call on the set, which is whole whatever happened to a thread that held it.
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Noted {
    all: Unpublished,
    id: RunId,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

/// A pending file that is noted for as long as it lives.
#[derive(Debug)]
struct Tracked {
    file: Box<dyn PendingFile>,
    /// Last, so that the file is gone or published before it is forgotten.
    _noted: Noted,
}

impl WriteFile for Tracked {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
}

impl PendingFile for Tracked {
    fn publish(self: Box<Self>) -> std::result::Result<(), PublishError> {
        let Self { file, _noted } = *self;
        file.publish()
    }
}
