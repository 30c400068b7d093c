//! The few verbs that everything above needs of a file system, and what each promises about durability.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// A file system: the machine's ([`RealDisk`](super::RealDisk)) or a simulated one that loses power.
///
/// Durability is explicit. Bytes are durable after [`WriteFile::sync`]; a name (made, renamed or removed) is durable after
/// [`Disk::sync_dir`] of the directory that holds it. Until then a crash may keep or lose each of them on its own.
pub trait Disk: Send + Sync + Debug + 'static {
    /// Makes a new, empty file for writing, readable by its owner only.
    ///
    /// # Errors
    /// `AlreadyExists` where the name is taken (also by a symbolic link).
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>>;

    /// As [`create_new`](Self::create_new), and shows every process of this machine that the file is being written, until it is
    /// dropped or the process ends.
    ///
    /// # Errors
    /// As [`create_new`](Self::create_new).
    fn create_held(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.create_new(path)
    }

    /// Whether whoever made the file with [`create_held`](Self::create_held) is gone. `false` where that cannot be known.
    ///
    /// # Errors
    /// Whatever the operating system reports, besides absence.
    fn is_abandoned(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Whether somebody is known to hold the file with [`create_held`](Self::create_held) or [`hold`](Self::hold).
    ///
    /// # Errors
    /// Whatever the operating system reports, besides absence.
    fn is_held(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Holds a file that is there against everybody else on this machine who asks, until the lock is dropped or the process ends; `None` where
    /// somebody else holds it. Without locks everybody gets one.
    ///
    /// # Errors
    /// `NotFound` where there is no file; whatever the operating system reports.
    fn hold(&self, path: &Path) -> Result<Option<DiskLock>> {
        let _ = path;
        Ok(Some(DiskLock::none()))
    }

    /// Removes a file if it is abandoned; says whether it was. Nobody can take it up again in between.
    ///
    /// # Errors
    /// Whatever the operating system reports, besides absence.
    fn remove_abandoned(&self, path: &Path) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Opens a file for reading. A symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// `NotFound` where there is no file, `Foreign` where something else than a file has the name.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;

    /// Gives the file at `from` the name `to` in one step that never replaces: of several callers exactly one wins.
    ///
    /// Only files are renamed, never directories. The new name is durable after [`Disk::sync_dir`] of the directory that holds `to`.
    ///
    /// # Errors
    /// `AlreadyExists` where `to` is taken, `NotFound` where `from` or the directory of `to` is missing, `PermissionDenied` and `DiskFull`:
    /// nothing was renamed. After `Io` it may have happened.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` where there is no file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes one directory level, accessible to its owner only; says whether it was missing.
    ///
    /// # Errors
    /// `NotFound` where the parent is missing, `AlreadyExists` where a file has the name.
    fn create_dir(&self, path: &Path) -> Result<bool>;

    /// Removes a directory that holds nothing: to undo [`create_dir`](Self::create_dir), where a file system can.
    ///
    /// # Errors
    /// `Io` where something is in it; `Unsupported` where the file system cannot.
    fn remove_dir(&self, path: &Path) -> Result<()> {
        Err(unsupported("remove a directory", path))
    }

    /// The entries of a directory, in no particular order. Shows everything that was made before the call; what is made or removed
    /// meanwhile may or may not show. Holds the whole listing in memory: a directory has as many entries as the store keeps files.
    /// Does not look at the entries one by one, which takes several times as long: lengths are for [`Disk::stat`] to tell.
    ///
    /// # Errors
    /// `NotFound` where there is no directory.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;

    /// What is at `path`, without following a symbolic link; `None` where nothing is.
    ///
    /// # Errors
    /// Whatever the operating system reports, besides absence.
    fn stat(&self, path: &Path) -> Result<Option<Stat>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// A failed sync says nothing about what is durable; it must not be repeated in the hope of better news.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Opens a file that is there for writing over it, from its first byte on. Its length stays until something is written beyond it.
    ///
    /// Only the log does this, and only to files that nobody needs any more, or to cut off what was never acknowledged.
    ///
    /// # Errors
    /// `NotFound` where there is no file, `Unsupported` where the file system cannot do it.
    fn overwrite(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Err(unsupported("write over a file", path))
    }

    /// Takes the advisory lock at `path`, which leaves a file there on a real disk. Dropping it, or dying, gives it back.
    ///
    /// # Errors
    /// `Locked` with the description of the holder, `Unsupported` where the file system has no locks.
    fn lock(&self, path: &Path, clock: &dyn Clock) -> Result<DiskLock> {
        let _ = clock;
        Err(unsupported("lock a file", path))
    }
}

/// A lock of [`Disk::lock`]; held until dropped.
#[derive(Debug)]
pub struct DiskLock {
    _held: Box<dyn LockHeld>,
}

impl DiskLock {
    /// What a file system without locks gives to everybody.
    pub(crate) fn none() -> Self {
        Self::new(Unlocked)
    }

    /// Wraps what gives the lock back when it is dropped.
    pub(super) fn new(held: impl LockHeld) -> Self {
        Self { _held: Box::new(held) }
    }
}

/// The lock that is none.
#[derive(Debug)]
struct Unlocked;

impl LockHeld for Unlocked {}

/// Whatever gives a lock back when it is dropped.
pub(super) trait LockHeld: Send + Sync + Debug + 'static {}

fn unsupported(what: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this file system does not {what}: {}", path.display()))
}

/// A file being written. Dropping it closes it and makes nothing durable.
pub trait WriteFile: Send + Debug {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// After an error the file's content is undefined; throw it away.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// After an error the file must be thrown away: a second sync may report success for bytes that are lost.
    fn sync(&mut self) -> Result<()>;

    /// Appends the parts one after the other, in one call to the system where that is possible.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn append_parts(&mut self, parts: &[&[u8]]) -> Result<()> {
        parts.iter().try_for_each(|part| self.append(part))
    }

    /// Makes all appended bytes durable with what is needed to read them again, but not the file's times.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn sync_data(&mut self) -> Result<()> {
        self.sync()
    }

    /// Reserves room up to `length_bytes`: the file becomes that long, filled up with zeros, and appending goes on where it was. Does
    /// nothing where the file is longer, or the file system cannot reserve.
    ///
    /// # Errors
    /// `DiskFull` where there is no room; the file may be longer than before.
    fn preallocate(&mut self, length_bytes: u64) -> Result<()> {
        let _ = length_bytes;
        Ok(())
    }

    /// Cuts the file to what has been appended, after a [`preallocate`](Self::preallocate) or in a file that is overwritten. The new length
    /// is durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// `Unsupported` where the file cannot be cut.
    fn cut_here(&mut self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "this file cannot be cut"))
    }

    /// Goes on at `offset` instead of where it was; what is there is written over.
    ///
    /// # Errors
    /// `Unsupported` where the file can only grow.
    fn seek_to(&mut self, offset: u64) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("this file cannot be written at byte {offset}")))
    }
}

/// A file being read. Safe to share between threads.
pub trait ReadFile: Send + Sync + Debug {
    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `Corrupt` where the file ends before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Puts `length` bytes from `offset` into an empty `buffer`, which grows to just that where it can, and is not filled with zeros before.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at).
    fn read_new_at(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> Result<()> {
        buffer.resize(length, 0);
        self.read_exact_at(buffer, offset)
    }

    /// Maps the whole file; the view stays valid after the file is removed.
    ///
    /// The view is sound as long as nobody truncates the file, which the owner of the directory keeps.
    ///
    /// # Errors
    /// `Corrupt` where the file no longer has the length it was opened with.
    fn map(&self) -> Result<Bytes>;

    /// Maps the whole file as [`map`](Self::map) does and tells the kernel how it will be read. The advice may be ignored.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    fn map_for(&self, access: Access) -> Result<Bytes> {
        match access {
            Access::Normal | Access::Random | Access::Sequential | Access::WillNeed => self.map(),
        }
    }

    /// Whether the file has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a mapping will be read. Only a measurement justifies anything but `Normal`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// The kernel's own read-ahead.
    #[default]
    Normal,
    /// Anywhere: reads no more than the touched page.
    Random,
    /// From front to back: reads far ahead and lets go behind.
    Sequential,
    /// Soon and all of it: starts to read it now.
    WillNeed,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name within the directory; names that are not UTF-8 are left out of listings.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stat {
    /// File, directory, or something else.
    pub kind: FileKind,
    /// Length in bytes; 0 for everything but a file.
    pub length_bytes: u64,
}

/// The kinds of directory entries that we tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, which is never followed.
    Link,
    /// A device, socket or pipe.
    Other,
}
