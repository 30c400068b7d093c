//! [`Recorder`]: a disk that takes an image before every change, and can be told to lie about syncs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alluvium::backend::SimIndex;
use alluvium::fs::{DirEntry, Disk, DiskLock, ReadFile, SimDisk, Stat, WriteFile};
use alluvium::{Bytes, Result};

/// What the disk claims without doing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Lie {
    #[default]
    None,
    /// Directories are never synced.
    DirectorySync,
    /// Files are never synced.
    FileSync,
}

/// Disk and index as a crash at this moment meets them.
#[derive(Debug)]
pub(super) struct Moment {
    /// With its unsynced pieces.
    pub(super) disk: SimDisk,
    /// How many moments the index's journal had: the index is as it was at the last of them.
    pub(super) index_moments: usize,
}

/// A simulated disk that is watched. Clones share everything.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sim: SimDisk,
    lie: Mutex<Lie>,
    recording: Mutex<Option<(SimIndex, Vec<Moment>)>>,
    offences: Mutex<Vec<String>>,
    bytes_read: AtomicU64,
    bytes_mapped: AtomicU64,
}

impl Recorder {
    /// Watches `sim`, and changes it.
    pub(super) fn new(sim: &SimDisk) -> Self {
        let shared = Shared {
            sim: sim.clone(),
            lie: Mutex::default(),
            recording: Mutex::default(),
            offences: Mutex::default(),
            bytes_read: AtomicU64::new(0),
            bytes_mapped: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn sim(&self) -> &SimDisk {
        &self.shared.sim
    }

    pub(super) fn lie(&self, lie: Lie) {
        *self.shared.lie.lock().unwrap() = lie;
    }

    /// Takes an image before each change from now on.
    pub(super) fn record(&self, index: &SimIndex) {
        *self.shared.recording.lock().unwrap() = Some((index.clone(), Vec::new()));
    }

    /// The images taken, and one of now.
    pub(super) fn moments(&self) -> Vec<Moment> {
        self.shared.moment();
        self.shared.recording.lock().unwrap().take().map(|(_, moments)| moments).unwrap_or_default()
    }

    /// What was done that must never be done: a sync repeated after it had failed, a temporary file read.
    pub(super) fn offences(&self) -> Vec<String> {
        self.shared.offences.lock().unwrap().clone()
    }

    /// Bytes read so far, by positioned reads and by mapping.
    pub(super) fn bytes_read(&self) -> (u64, u64) {
        (self.shared.bytes_read.load(Ordering::Relaxed), self.shared.bytes_mapped.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn moment(&self) {
        if let Some((index, moments)) = &mut *self.recording.lock().unwrap() {
            moments.push(Moment { disk: self.sim.fork(), index_moments: index.moments() });
        }
    }

    fn offence(&self, what: String) {
        self.offences.lock().unwrap().push(what);
    }

    fn lies(&self, lie: Lie) -> bool {
        *self.lie.lock().unwrap() == lie
    }
}

/// Whether this is the path of a file that was never published.
pub(super) fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp-"))
}

impl Disk for Recorder {
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.shared.moment();
        let inner = self.shared.sim.create_new(path)?;
        Ok(Box::new(Written { inner, shared: Arc::clone(&self.shared), path: path.into(), sync_failed: false }))
    }

    fn create_held(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.shared.moment();
        let inner = self.shared.sim.create_held(path)?;
        Ok(Box::new(Written { inner, shared: Arc::clone(&self.shared), path: path.into(), sync_failed: false }))
    }

    fn is_abandoned(&self, path: &Path) -> Result<bool> {
        self.shared.sim.is_abandoned(path)
    }

    fn is_held(&self, path: &Path) -> Result<bool> {
        self.shared.sim.is_held(path)
    }

    fn hold(&self, path: &Path) -> Result<Option<DiskLock>> {
        self.shared.sim.hold(path)
    }

    fn remove_abandoned(&self, path: &Path) -> Result<bool> {
        self.shared.moment();
        self.shared.sim.remove_abandoned(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        if is_temporary(path) {
            self.shared.offence(format!("{} was opened", path.display()));
        }
        let inner = self.shared.sim.open(path)?;
        Ok(Arc::new(Counted { inner, shared: Arc::clone(&self.shared) }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.moment();
        self.shared.sim.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.shared.moment();
        self.shared.sim.remove(path)
    }

    fn create_dir(&self, path: &Path) -> Result<bool> {
        self.shared.moment();
        self.shared.sim.create_dir(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.shared.sim.list(path)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        self.shared.sim.stat(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.shared.moment();
        if self.shared.lies(Lie::DirectorySync) { Ok(()) } else { self.shared.sim.sync_dir(path) }
    }
}

/// Appends in two halves, so that each of them is a piece that may be torn or lost.
#[derive(Debug)]
struct Written {
    inner: Box<dyn WriteFile>,
    shared: Arc<Shared>,
    path: PathBuf,
    sync_failed: bool,
}

impl WriteFile for Written {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let (front, back) = bytes.split_at(bytes.len() / 2);
        for half in [front, back] {
            self.shared.moment();
            self.inner.append(half)?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        if self.sync_failed {
            self.shared.offence(format!("the sync of {} was repeated after it had failed", self.path.display()));
        }
        self.shared.moment();
        let outcome = if self.shared.lies(Lie::FileSync) { Ok(()) } else { self.inner.sync() };
        self.sync_failed |= outcome.is_err();
        outcome
    }
}

#[derive(Debug)]
struct Counted {
    inner: Arc<dyn ReadFile>,
    shared: Arc<Shared>,
}

impl ReadFile for Counted {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.shared.bytes_read.fetch_add(u64::try_from(buffer.len()).unwrap(), Ordering::Relaxed);
        self.inner.read_exact_at(buffer, offset)
    }

    fn map(&self) -> Result<Bytes> {
        self.shared.bytes_mapped.fetch_add(self.len(), Ordering::Relaxed);
        self.inner.map()
    }
}

#[test]
fn a_repeated_sync_and_a_look_into_a_temporary_are_noticed() {
    use alluvium::fs::sim::{Operation, Persistence};

    let recorder = Recorder::new(&SimDisk::new(1));
    let path = Path::new("/.tmp-1");
    let mut file = recorder.create_new(path).unwrap();
    file.append(b"bytes").unwrap();
    recorder.sim().fail_at(1, &[Operation::Sync], std::io::ErrorKind::Other, Persistence::Once);
    file.sync().unwrap_err();
    assert_eq!(recorder.offences(), Vec::<String>::new());
    file.sync().unwrap();
    recorder.open(path).unwrap();
    assert_eq!(recorder.offences().len(), 2);
}
