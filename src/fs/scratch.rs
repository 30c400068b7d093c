//! [`ScratchDir`]: files that nobody needs after the process has ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::contract::{Disk, ReadFile, WriteFile};
use crate::error::Result;

/// A directory of our own for temporary files. Clones give out names of one sequence.
///
/// Nothing in it is synced. What a crash leaves behind is removed by whoever claims the directory next.
#[derive(Debug, Clone)]
pub(crate) struct ScratchDir {
    disk: Arc<dyn Disk>,
    path: Arc<Path>,
    next: Arc<AtomicU64>,
}

/// One temporary file, which is removed when this is dropped. Mappings of it stay readable.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl ScratchDir {
    /// Files in `path`, an empty directory that is there already.
    pub(crate) fn new(disk: Arc<dyn Disk>, path: &Path) -> Self {
        Self { disk, path: Arc::from(path), next: Arc::default() }
    }

    /// Makes a new file.
    ///
    /// # Errors
    /// What the disk reports.
    pub(crate) fn create(&self) -> Result<(ScratchFile, Box<dyn WriteFile>)> {
        let path = self.path.join(format!("{:08}.part", self.next.fetch_add(1, Ordering::Relaxed)));
        let file = self.disk.create_new(&path)?;
        Ok((ScratchFile { disk: Arc::clone(&self.disk), path }, file))
    }
}

impl ScratchFile {
    /// Opens it for reading.
    ///
    /// # Errors
    /// What the disk reports.
    pub(crate) fn open(&self) -> Result<Arc<dyn ReadFile>> {
        self.disk.open(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        if let Err(error) = self.disk.remove(&self.path) {
            tracing::warn!(%error, "a temporary file stays until the next open");
        }
    }
}
