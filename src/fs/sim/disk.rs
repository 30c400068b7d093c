//! [`SimDisk`]: the simulated disk behind the `Disk` trait, and the handles that crash tests hold it by.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::faults::{Effect, Faults, Operation, Persistence, Verdict};
use super::image::{FileId, Image};
use super::loss::{Survivors, random};
use crate::bytes::Bytes;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::contract::{DirEntry, Disk, DiskLock, LockHeld, ReadFile, Stat, WriteFile};
use crate::fs::exact;

/// A disk in memory whose power can go at any operation. Clones are handles of one disk.
///
/// Paths start at `/`, which is there from the beginning.
#[derive(Clone)]
pub struct SimDisk {
    /// Guards the whole disk; nothing is taken under it.
    state: Arc<Mutex<State>>,
}

struct State {
    image: Image,
    faults: Faults,
    seed: u64,
    /// Random numbers taken so far.
    drawn: usize,
    locks: BTreeSet<PathBuf>,
    /// The files that are being written and show it.
    held: BTreeSet<FileId>,
}

/// What tests do to it.
impl SimDisk {
    /// An empty disk. The seed decides how failing appends tear and where short reads stop.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with(Image::new(), seed)
    }

    fn with(image: Image, seed: u64) -> Self {
        let state =
            State { image, faults: Faults::default(), seed, drawn: 0, locks: BTreeSet::new(), held: BTreeSet::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power at the `nth` operation from now (1 is the next one): that one has no effect, and all fail from there on.
    pub fn crash_at(&self, nth: u64) {
        self.state().faults.crash_at(nth, Effect::Undone);
    }

    /// Cuts the power just after the `nth` operation from now took effect, before its caller learns it. What it did is one more
    /// piece that may survive, in part if it is an append; a sync did its work.
    pub fn crash_after(&self, nth: u64) {
        self.state().faults.crash_at(nth, Effect::Done);
    }

    /// Cuts the power now.
    pub fn power_off(&self) {
        self.state().faults.power_is_off = true;
    }

    /// Lets the `nth` of these operations from now fail without effect, the rest go on. No operations named: all that are crash points.
    ///
    /// A failing append leaves a random part behind; a failing sync dooms the bytes that it was for.
    pub fn fail_at(&self, nth: u64, operations: &[Operation], error: io::ErrorKind, persistence: Persistence) {
        self.state().faults.fail_at(nth, operations, error, persistence, Effect::Undone);
    }

    /// Like [`fail_at`](Self::fail_at), but the operation takes effect before it fails: the answer is what is lost.
    pub fn fail_after(&self, nth: u64, operations: &[Operation], error: io::ErrorKind, persistence: Persistence) {
        self.state().faults.fail_at(nth, operations, error, persistence, Effect::Done);
    }

    /// Takes back all faults that have not fired, and those that last for ever. The power stays off if it is.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Whether reads return fewer bytes than asked for, which the layer above must go on with.
    pub fn short_reads(&self, on: bool) {
        self.state().faults.short_reads = on;
    }

    /// How many operations that are crash points were asked for while the power was on.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().faults.operations
    }

    /// How many faults, crashes among them, have fired. A test that plans some asserts this.
    #[must_use]
    pub fn faults_fired(&self) -> u64 {
        self.state().faults.fired
    }

    /// How many unsynced pieces survive or not, each on its own, if the power goes now.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().image.pending()
    }

    /// The disk as it is found after the power went now and came back: everything that survived is durable, no faults are planned.
    #[must_use]
    pub fn survive(&self, survivors: Survivors) -> Self {
        let state = self.state();
        Self::with(state.image.survive(survivors), state.seed)
    }

    /// The disk as the next process finds it after this one was killed: everything is there, and what was unsynced still is. No
    /// faults are planned. What is done to one of the two disks does not show on the other.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state();
        Self::with(state.image.clone(), state.seed)
    }

    /// The content of a file as programs see it. Neither counted nor failed, like all that follow.
    ///
    /// # Errors
    /// `NotFound` where there is no file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Bytes> {
        let state = self.state();
        state.image.open(path.as_ref()).map(|id| state.image.content(id))
    }

    /// Puts a file there, its directories too, in place of what it held before; all of it durable at once.
    ///
    /// # Errors
    /// `AlreadyExists` where a directory has the name.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        self.state().image.put(path.as_ref(), bytes)
    }

    /// Turns over one bit of a file; bit 8 is the lowest of the second byte. The file is durable afterwards.
    ///
    /// # Errors
    /// `NotFound` where there is no file, `InvalidInput` where it is too short.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) -> Result<()> {
        let mut found = false;
        self.state().image.damage(path.as_ref(), |bytes| {
            if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bytes.get_mut(at)) {
                *byte ^= 1 << (bit % 8);
                found = true;
            }
        })?;
        if found { Ok(()) } else { Err(Error::invalid(format!("the file has no bit {bit}"))) }
    }

    /// Cuts a file after `length_bytes`, or fills it up with zeros to them. The file is durable afterwards.
    ///
    /// # Errors
    /// `NotFound` where there is no file.
    pub fn truncate(&self, path: impl AsRef<Path>, length_bytes: u64) -> Result<()> {
        let length = usize::try_from(length_bytes).map_err(|error| Error::invalid("too long").with_source(error))?;
        self.state().image.damage(path.as_ref(), |bytes| bytes.resize(length, 0))
    }

    /// The paths of all files that programs see, in order.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().image.paths()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn act<T>(&self, operation: Operation, path: &Path, effect: impl FnOnce(&mut Image) -> Result<T>) -> Result<T> {
        let mut state = self.state();
        match state.faults.judge(operation) {
            Verdict::Succeed => effect(&mut state.image),
            Verdict::FailLate(error) => {
                effect(&mut state.image)?;
                Err(simulated(operation, path, error))
            }
            Verdict::Fail(error) | Verdict::Dead(error) => Err(simulated(operation, path, error)),
        }
    }
}

impl State {
    fn draw(&mut self, below: usize) -> usize {
        self.drawn += 1;
        let below = u64::try_from(below).unwrap_or(u64::MAX).max(1);
        usize::try_from(random(self.seed, self.drawn) % below).unwrap_or(0)
    }
}

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let id = self.act(Operation::Create, path, |image| image.create(path))?;
        Ok(Box::new(SimWriteFile { disk: self.clone(), path: path.to_path_buf(), id, position: 0 }))
    }

    fn create_held(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let id = self.act(Operation::Create, path, |image| image.create(path))?;
        self.state().held.insert(id);
        Ok(Box::new(SimWriteFile { disk: self.clone(), path: path.to_path_buf(), id, position: 0 }))
    }

    fn is_abandoned(&self, path: &Path) -> Result<bool> {
        let found = self.act(Operation::Open, path, |image| image.open(path));
        match found {
            Err(error) if error.is_not_found() => Ok(false),
            found => found.map(|id| !self.state().held.contains(&id)),
        }
    }

    fn is_held(&self, path: &Path) -> Result<bool> {
        let found = self.act(Operation::Open, path, |image| image.open(path));
        match found {
            Err(error) if error.is_not_found() => Ok(false),
            found => found.map(|id| self.state().held.contains(&id)),
        }
    }

    fn hold(&self, path: &Path) -> Result<Option<DiskLock>> {
        let id = self.act(Operation::Open, path, |image| image.open(path))?;
        let is_free = self.state().held.insert(id);
        Ok(is_free.then(|| DiskLock::new(SimHeld { disk: self.clone(), id })))
    }

    fn remove_abandoned(&self, path: &Path) -> Result<bool> {
        if !self.is_abandoned(path)? {
            return Ok(false);
        }
        self.remove(path).map(|()| true)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        let (id, length) = self.act(Operation::Open, path, |image| {
            let id = image.open(path)?;
            Ok((id, image.length(id)))
        })?;
        Ok(Arc::new(SimReadFile { disk: self.clone(), path: path.to_path_buf(), id, length }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.act(Operation::Rename, to, |image| image.rename_new(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.act(Operation::Remove, path, |image| image.remove(path))
    }

    fn create_dir(&self, path: &Path) -> Result<bool> {
        self.act(Operation::CreateDir, path, |image| image.create_dir(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.act(Operation::List, path, |image| image.list(path))
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        self.act(Operation::Stat, path, |image| image.stat(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.act(Operation::SyncDir, path, |image| image.sync_dir(path))
    }

    fn overwrite(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let id = self.act(Operation::Open, path, |image| image.open(path))?;
        Ok(Box::new(SimWriteFile { disk: self.clone(), path: path.to_path_buf(), id, position: 0 }))
    }

    fn lock(&self, path: &Path, _: &dyn Clock) -> Result<DiskLock> {
        if self.state().locks.insert(path.to_path_buf()) {
            return Ok(DiskLock::new(SimLock { disk: self.clone(), path: path.to_path_buf() }));
        }
        let kind = ErrorKind::Locked { holder: "another handle of the simulated disk".to_owned() };
        Err(Error::new(kind, format!("could not lock {}", path.display())))
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl LockHeld for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}

/// Holds a file.
#[derive(Debug)]
struct SimHeld {
    disk: SimDisk,
    id: FileId,
}

impl LockHeld for SimHeld {}

impl Drop for SimHeld {
    fn drop(&mut self) {
        self.disk.state().held.remove(&self.id);
    }
}

#[derive(Debug)]
struct SimWriteFile {
    disk: SimDisk,
    path: PathBuf,
    id: FileId,
    /// Where the next append goes.
    position: usize,
}

impl SimWriteFile {
    /// Counted and failed like an append, since it changes the file like one.
    fn set_length(&mut self, length: usize) -> Result<()> {
        let mut state = self.disk.state();
        let (done, outcome) = match state.faults.judge(Operation::Append) {
            Verdict::Succeed => (true, Ok(())),
            Verdict::FailLate(error) => (true, Err(error)),
            Verdict::Fail(error) | Verdict::Dead(error) => (false, Err(error)),
        };
        if done {
            state.image.set_length(self.id, length);
        }
        outcome.map_err(|error| simulated(Operation::Append, &self.path, error))
    }
}

impl Drop for SimWriteFile {
    fn drop(&mut self) {
        self.disk.state().held.remove(&self.id);
    }
}

impl WriteFile for SimWriteFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut state = self.disk.state();
        let (written, outcome) = match state.faults.judge(Operation::Append) {
            Verdict::Succeed => (bytes.len(), Ok(())),
            Verdict::Fail(error) => (state.draw(bytes.len()), Err(error)),
            Verdict::FailLate(error) => (bytes.len(), Err(error)),
            Verdict::Dead(error) => (0, Err(error)),
        };
        state.image.write(self.id, self.position, bytes.get(..written).unwrap_or(bytes));
        self.position += written;
        outcome.map_err(|error| simulated(Operation::Append, &self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        let mut state = self.disk.state();
        let outcome = match state.faults.judge(Operation::Sync) {
            Verdict::Succeed => {
                state.image.sync(self.id);
                Ok(())
            }
            Verdict::FailLate(error) => {
                state.image.sync(self.id);
                Err(error)
            }
            Verdict::Fail(error) => {
                state.image.doom(self.id);
                Err(error)
            }
            Verdict::Dead(error) => Err(error),
        };
        outcome.map_err(|error| simulated(Operation::Sync, &self.path, error))
    }

    fn preallocate(&mut self, length_bytes: u64) -> Result<()> {
        let length = usize::try_from(length_bytes).map_err(|error| Error::invalid("too long").with_source(error))?;
        let grows = self.disk.state().image.length(self.id) < length_bytes;
        if grows { self.set_length(length) } else { Ok(()) }
    }

    fn cut_here(&mut self) -> Result<()> {
        self.set_length(self.position)
    }

    fn seek_to(&mut self, offset: u64) -> Result<()> {
        self.position = usize::try_from(offset).map_err(|error| Error::invalid("too far").with_source(error))?;
        Ok(())
    }
}

#[derive(Debug)]
struct SimReadFile {
    disk: SimDisk,
    path: PathBuf,
    id: FileId,
    length: u64,
}

impl SimReadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        match state.faults.judge(Operation::Read) {
            Verdict::Succeed => {}
            Verdict::Fail(error) | Verdict::FailLate(error) | Verdict::Dead(error) => return Err(error),
        }
        let content = state.image.content(self.id);
        let rest = usize::try_from(offset).ok().and_then(|start| content.get(start..)).unwrap_or_default();
        let mut count = rest.len().min(buffer.len());
        if state.faults.short_reads && count > 1 {
            count = 1 + state.draw(count - 1);
        }
        for (to, from) in buffer.iter_mut().zip(rest.iter().take(count)) {
            *to = *from;
        }
        Ok(count)
    }
}

impl ReadFile for SimReadFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        exact::read_exact_at(&self.path, buffer, offset, |part, at| self.read_at(part, at))
    }

    fn map(&self) -> Result<Bytes> {
        let content = self.disk.act(Operation::Read, &self.path, |image| Ok(image.content(self.id)))?;
        let found = u64::try_from(content.len()).unwrap_or(u64::MAX);
        if found == self.length {
            return Ok(content);
        }
        let (expected, found_text) = (format!("{} bytes", self.length), format!("{found} bytes"));
        Err(Error::corrupt(&self.path, found.min(self.length), expected, found_text))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").finish_non_exhaustive()
    }
}

fn simulated(operation: Operation, path: &Path, error: io::Error) -> Error {
    let doing = match operation {
        Operation::Create => "create the file",
        Operation::Append => "append to the file",
        Operation::Sync => "sync the file",
        Operation::Rename => "rename the file",
        Operation::Remove => "remove the file",
        Operation::CreateDir => "make the directory",
        Operation::SyncDir => "sync the directory",
        Operation::Open => "open the file",
        Operation::Read => "read the file",
        Operation::List => "list the directory",
        Operation::Stat => "look at the path",
    };
    Error::io(path, doing, error)
}
