//! [`FaultyCheckpoint`]: a checkpoint that fails at a chosen moment of the commit protocol, once.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::checkpoint::{Checkpoint, PendingFile};
use crate::error::{Error, Result};
use crate::fs::{DirEntry, PublishError, ReadFile, WriteFile};

/// Where the next file whose path contains the chosen text meets its fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It cannot even be begun.
    Create,
    /// Its bytes do not fit.
    Append,
    /// The file system refuses to give it its name: it certainly is not there.
    Refused,
    /// The answer is lost and the file was not renamed.
    LostBefore,
    /// The answer is lost, but the file was renamed.
    LostAfter,
    /// It is published, and then the forks cannot be listed.
    LookFails,
    /// The second half of that.
    Looking,
}

#[derive(Debug, Default)]
struct Plan {
    armed: Option<(Fault, &'static str)>,
    fired: usize,
}

/// Hands everything on to another checkpoint until a fault is due. Clones share their plan.
#[derive(Debug, Clone)]
pub(super) struct FaultyCheckpoint {
    inner: Arc<dyn Checkpoint>,
    plan: Arc<Mutex<Plan>>,
}

impl FaultyCheckpoint {
    pub(super) fn over(inner: Arc<dyn Checkpoint>) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Plans `fault` for the next file whose path contains `what`.
    pub(super) fn arm(&self, fault: Fault, what: &'static str) {
        self.plan().armed = Some((fault, what));
    }

    /// How many faults were met so far. What is still planned then is called off.
    pub(super) fn fired(&self) -> usize {
        let mut plan = self.plan();
        plan.armed = None;
        plan.fired
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one of `faults` is due for `path`; it is called off then.
    fn meets(&self, path: &str, faults: &[Fault]) -> Option<Fault> {
        let mut plan = self.plan();
        let (fault, _) = plan.armed.filter(|(fault, what)| faults.contains(fault) && path.contains(what))?;
        plan.armed = None;
        plan.fired += usize::from(fault != Fault::LookFails); // which is met twice
        Some(fault)
    }
}

impl Checkpoint for FaultyCheckpoint {
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>> {
        if self.meets(path, &[Fault::Create]).is_some() {
            return Err(full(self.display_path(path)));
        }
        let inner = self.inner.create(path, temporary)?;
        Ok(Box::new(FaultyFile { inner, path: path.to_owned(), checkpoint: self.clone() }))
    }

    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn length(&self, path: &str) -> Result<Option<u64>> {
        self.inner.length(path)
    }

    fn list(&self, dir: &str) -> Result<Vec<DirEntry>> {
        if self.meets(dir, &[Fault::Looking]).is_some() {
            return Err(broken(self.display_path(dir)));
        }
        self.inner.list(dir)
    }

    fn delete(&self, path: &str) -> Result<()> {
        self.inner.delete(path)
    }

    fn sync(&self, dir: &str) -> Result<()> {
        self.inner.sync(dir)
    }

    fn display_path(&self, path: &str) -> PathBuf {
        self.inner.display_path(path)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Box<dyn PendingFile>,
    path: String,
    checkpoint: FaultyCheckpoint,
}

impl WriteFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self.checkpoint.meets(&self.path, &[Fault::Append]) {
            Some(_) => Err(full(self.checkpoint.display_path(&self.path))),
            None => self.inner.append(bytes),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }
}

impl PendingFile for FaultyFile {
    fn publish(self: Box<Self>) -> std::result::Result<(), PublishError> {
        let Self { inner, path, checkpoint } = *self;
        let at = checkpoint.display_path(&path);
        match checkpoint.meets(&path, &[Fault::Refused, Fault::LostBefore, Fault::LostAfter, Fault::LookFails]) {
            Some(Fault::Refused) => Err(PublishError::NotPublished(full(at))),
            Some(Fault::LostBefore) => Err(PublishError::Unknown(broken(at))),
            Some(Fault::LostAfter) => inner.publish().and_then(|()| Err(PublishError::Unknown(broken(at)))),
            Some(Fault::LookFails) => {
                inner.publish()?;
                checkpoint.arm(Fault::Looking, "forks");
                Ok(())
            }
            _ => inner.publish(),
        }
    }
}

fn full(path: PathBuf) -> Error {
    Error::io(path, "write, as planned by the suite", io::ErrorKind::StorageFull.into())
}

fn broken(path: PathBuf) -> Error {
    Error::io(path, "finish, as planned by the suite", io::ErrorKind::TimedOut.into())
}
