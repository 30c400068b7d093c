//! A disk on which somebody else is at work: before its operations something happens that a test decides.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use alluvium::fs::{DirEntry, Disk, DiskLock, ReadFile, SimDisk, Stat, WriteFile};
use alluvium::{Bytes, Clock, Result};

/// What somebody else does before each operation of a disk.
type Act = Box<dyn FnMut() + Send>;

/// A disk on which somebody else is at work.
#[derive(Clone)]
pub(super) struct Beside {
    sim: SimDisk,
    /// Taken out while it acts, so that what it does itself is left alone.
    act: Arc<Mutex<Option<Act>>>,
}

impl Beside {
    pub(super) fn new(sim: &SimDisk) -> Self {
        Self { sim: sim.clone(), act: Arc::default() }
    }

    pub(super) fn set(&self, act: impl FnMut() + Send + 'static) {
        *self.act.lock().unwrap() = Some(Box::new(act));
    }

    fn step(&self) {
        let taken = self.act.lock().unwrap().take();
        if let Some(mut act) = taken {
            act();
            *self.act.lock().unwrap() = Some(act);
        }
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Beside")
    }
}

impl Disk for Beside {
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(BesideWriter { on: self.clone(), file: self.sim.create_new(path)? }))
    }

    fn overwrite(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(BesideWriter { on: self.clone(), file: self.sim.overwrite(path)? }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.step();
        let file = self.sim.open(path)?;
        Ok(Arc::new(BesideFile { on: self.clone(), file }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.step();
        self.sim.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.step();
        self.sim.remove(path)
    }

    fn create_dir(&self, path: &Path) -> Result<bool> {
        self.sim.create_dir(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.step();
        self.sim.list(path)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        self.step();
        self.sim.stat(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.sim.sync_dir(path)
    }

    fn lock(&self, path: &Path, clock: &dyn Clock) -> Result<DiskLock> {
        self.sim.lock(path, clock)
    }
}

#[derive(Debug)]
struct BesideWriter {
    on: Beside,
    file: Box<dyn WriteFile>,
}

impl WriteFile for BesideWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.on.step();
        self.file.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.on.step();
        self.file.sync()
    }

    fn preallocate(&mut self, length_bytes: u64) -> Result<()> {
        self.file.preallocate(length_bytes)
    }

    fn cut_here(&mut self) -> Result<()> {
        self.file.cut_here()
    }

    fn seek_to(&mut self, offset: u64) -> Result<()> {
        self.file.seek_to(offset)
    }
}

#[derive(Debug)]
struct BesideFile {
    on: Beside,
    file: Arc<dyn ReadFile>,
}

impl ReadFile for BesideFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.on.step();
        self.file.read_exact_at(buffer, offset)
    }

    fn map(&self) -> Result<Bytes> {
        self.file.map()
    }
}
