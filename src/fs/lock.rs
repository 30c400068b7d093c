//! [`FileLock`]: one holder of a directory on this machine, and a word about who it is.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::contract::LockHeld;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// More of a holder's description is not read.
const DESCRIPTION_LIMIT_BYTES: u64 = 512;

/// An exclusive advisory lock on a file, held until dropped or until the process dies.
///
/// It keeps apart those who ask, on one machine: processes and also handles within one. It fences nobody who holds a
/// file open already. The file stays when the lock is gone: removing it would let two holders lock two files of one name.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing would do, but a child process between its fork and its exec still holds the same open file, and with it the lock.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "a lock was not given back; it goes when the file is closed");
        }
    }
}

impl LockHeld for FileLock {}

impl FileLock {
    /// Locks the file at `path`, which is made if missing, and writes down who holds it. Where that cannot be written, on a full disk above all,
    /// the lock is held all the same.
    ///
    /// # Errors
    /// `Locked` with the description of the holder; `Foreign` where something else than a file has the name.
    pub(crate) fn acquire(path: &Path, clock: &dyn Clock) -> Result<Self> {
        Self::acquire_described(path, |file| write_description(file, clock))
    }

    fn acquire_described(path: &Path, describe: impl FnOnce(&mut File) -> std::io::Result<()>) -> Result<Self> {
        let mut file = open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let kind = ErrorKind::Locked { holder: read_description(&mut file) };
                return Err(Error::new(kind, format!("could not lock {}", path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(path, "lock the file", error)),
        }
        if let Err(error) = describe(&mut file) {
            tracing::debug!(%error, file = %path.display(), "a lock is held without a word about its holder");
        }
        Ok(Self { file })
    }
}

fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let foreign = || Error::new(ErrorKind::Foreign { path: path.to_path_buf() }, "the lock is not a regular file");
    let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::ISDIR) => return Err(foreign()),
        Err(errno) => return Err(Error::io(path, "open the lock file", errno.into())),
    };
    let metadata = file.metadata().map_err(|error| Error::io(path, "look at the lock file", error))?;
    if metadata.is_file() { Ok(file) } else { Err(foreign()) }
}

/// Only for people to read, so neither synced nor trusted.
fn write_description(file: &mut File, clock: &dyn Clock) -> std::io::Result<()> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "unknown" } else { host.trim() };
    let text = format!("process {} on host {host} since {} ms after 1970\n", std::process::id(), clock.wall_ms());
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

fn read_description(file: &mut File) -> String {
    let mut bytes = Vec::new();
    // The holder may be about to write it, or the medium may be bad; the lock is taken all the same.
    let read = file.take(DESCRIPTION_LIMIT_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.trim().chars().filter(|character| !character.is_control()).collect();
    if read.is_err() || text.is_empty() { "a holder that has not described itself".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn lock(path: &Path) -> Result<FileLock> {
        FileLock::acquire(path, &SystemClock::new())
    }

    #[test]
    fn the_second_holder_learns_who_the_first_is_and_gets_its_turn_when_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let first = lock(&path).unwrap();
        let error = lock(&path).unwrap_err();
        let ErrorKind::Locked { holder } = error.kind() else { panic!("{error}") };
        assert!(holder.starts_with(&format!("process {} on host ", std::process::id())), "{holder}");
        drop(first);
        assert!(path.exists());
        drop(lock(&path).unwrap());
    }

    #[test]
    fn a_lock_is_free_at_once_also_while_a_child_still_has_the_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let first = lock(&path).unwrap();
        let inherited = first.file.try_clone().unwrap();
        drop(first);
        drop(lock(&path).unwrap());
        drop(inherited);
    }

    #[test]
    fn a_strange_description_is_shortened_and_cleaned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        std::fs::write(&path, format!("evil\x1b[2J\n{}", "x".repeat(100_000))).unwrap();
        let foreign_holder = File::open(&path).unwrap();
        foreign_holder.lock().unwrap();
        let error = lock(&path).unwrap_err();
        let ErrorKind::Locked { holder } = error.kind() else { panic!("{error}") };
        assert!(holder.starts_with("evil[2Jxxx") && holder.len() <= 512);
        std::fs::write(&path, "").unwrap();
        assert!(lock(&path).unwrap_err().to_string().contains("has not described itself"));
    }

    #[test]
    fn a_holder_that_cannot_describe_itself_holds_the_lock_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let full = |_: &mut File| Err(std::io::ErrorKind::StorageFull.into());
        let _first = FileLock::acquire_described(&path, full).unwrap();
        let error = lock(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error}");
    }

    #[test]
    fn a_longer_description_of_an_earlier_holder_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        std::fs::write(&path, "x".repeat(1000)).unwrap();
        let _lock = lock(&path).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains('x'));
    }

    #[test]
    fn only_a_regular_file_is_locked() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for path in [&link, directory.path()] {
            assert!(matches!(lock(path).unwrap_err().kind(), ErrorKind::Foreign { .. }));
        }
        assert!(!target.exists());
        assert!(lock(&directory.path().join("missing/LOCK")).unwrap_err().is_not_found());
    }
}
