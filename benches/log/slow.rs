//! The system's disk with syncs that take longer, as those of disks without a cache do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::fs::{DirEntry, Disk, DiskLock, ReadFile, RealDisk, Stat, WriteFile};
use alluvium::{Clock, Result};

/// Adds `wait` to each sync of a file.
#[derive(Debug)]
pub(crate) struct SlowDisk {
    inner: RealDisk,
    wait: Duration,
}

impl SlowDisk {
    pub(crate) fn new(wait: Duration) -> Self {
        Self { inner: RealDisk::new(), wait }
    }

    fn slow(&self, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(SlowFile { inner, wait: self.wait })
    }
}

impl Disk for SlowDisk {
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.inner.create_new(path).map(|file| self.slow(file))
    }

    fn overwrite(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.inner.overwrite(path).map(|file| self.slow(file))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn create_dir(&self, path: &Path) -> Result<bool> {
        self.inner.create_dir(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        self.inner.stat(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path, clock: &dyn Clock) -> Result<DiskLock> {
        self.inner.lock(path, clock)
    }
}

#[derive(Debug)]
struct SlowFile {
    inner: Box<dyn WriteFile>,
    wait: Duration,
}

impl SlowFile {
    #[expect(clippy::disallowed_methods, reason = "that time passes is what it is for")]
    fn take_time(&self) {
        std::thread::sleep(self.wait);
    }
}

impl WriteFile for SlowFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.append(bytes)
    }

    fn append_parts(&mut self, parts: &[&[u8]]) -> Result<()> {
        self.inner.append_parts(parts)
    }

    fn sync(&mut self) -> Result<()> {
        self.take_time();
        self.inner.sync()
    }

    fn sync_data(&mut self) -> Result<()> {
        self.take_time();
        self.inner.sync_data()
    }

    fn preallocate(&mut self, length_bytes: u64) -> Result<()> {
        self.inner.preallocate(length_bytes)
    }

    fn cut_here(&mut self) -> Result<()> {
        self.inner.cut_here()
    }

    fn seek_to(&mut self, offset: u64) -> Result<()> {
        self.inner.seek_to(offset)
    }
}
