//! Files that show by a lock that somebody is writing them.
//!
//! The lock goes with the process, however that ends, so a clean-up can tell what a killed writer has left from what is being written.
//! It locks before it removes, and a writer looks after it has locked whether the file still has a name: one of the two sees the other.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, lstat};
use rustix::io::{Errno, retry_on_intr};

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

/// The file at `path`, locked, if nobody is writing it; `None` where somebody is, where none is there, and where it cannot be known.
pub(super) fn abandoned(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(Error::io(path, "open the file", errno.into())),
    };
    let metadata = file.metadata().map_err(|error| Error::io(path, "look at the file", error))?;
    let is_free = || retry_on_intr(|| flock(&file, FlockOperation::NonBlockingLockExclusive)).is_ok();
    if !metadata.is_file() || !is_free() {
        return Ok(None);
    }
    // It may have been given its name meanwhile, and another file may have this one. As long as it has it, nobody can make another here.
    let there = lstat(path).ok().filter(|there| (there.st_dev, there.st_ino) == (metadata.dev(), metadata.ino()));
    Ok(there.map(|_| file))
}
