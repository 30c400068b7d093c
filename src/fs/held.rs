//! Files that show by a lock that somebody is writing them.
//!
//! The lock goes with the process, however that ends, so a clean-up can tell what a killed writer has left from what is being written.
//! It locks before it removes, and a writer looks after it has locked whether the file still has a name: one of the two sees the other.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, lstat};
use rustix::io::{Errno, retry_on_intr};

use super::contract::LockHeld;
use crate::error::{Error, Result};

/// Locks a file that was just made; `false` where a clean-up has removed it already. Where the file system has no locks, nobody removes it.
pub(super) fn hold(path: &Path, file: &File) -> Result<bool> {
    match retry_on_intr(|| flock(file, FlockOperation::LockExclusive)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS | Errno::INVAL | Errno::BADF) => {}
        Err(errno) => return Err(Error::io(path, "lock the new file", errno.into())),
    }
    let stat = fstat(file).map_err(|errno| Error::io(path, "look at the new file", errno.into()))?;
    Ok(stat.st_nlink > 0)
}

/// What a look at a file shows.
pub(super) enum Look {
    /// There is none, or another one has the name by now.
    Absent,
    /// Somebody holds it.
    Busy,
    /// Nobody did, and now it is locked.
    Locked(Held),
    /// It cannot be known.
    NoLocks,
}

/// A locked file; dropping it, or dying, gives the lock back.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

impl LockHeld for Held {}

/// Locks the file at `path`, if nobody holds it.
pub(super) fn look(path: &Path) -> Result<Look> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(Look::Absent),
        Err(errno) => return Err(Error::io(path, "open the file", errno.into())),
    };
    let metadata = file.metadata().map_err(|error| Error::io(path, "look at the file", error))?;
    if !metadata.is_file() {
        return Ok(Look::Absent);
    }
    match retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(Look::Busy),
        Err(_) => return Ok(Look::NoLocks),
    }
    // It may have been given its name meanwhile, and another file may have this one. As long as it has it, nobody can make another here.
    let there = lstat(path).ok().map(|there| (there.st_dev, there.st_ino));
    let is_there = there == Some((metadata.dev(), metadata.ino()));
    Ok(if is_there { Look::Locked(Held { _file: file }) } else { Look::Absent })
}
