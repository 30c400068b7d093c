//! The few verbs that everything above needs of a file system, and what each promises about durability.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::error::Result;

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

    /// The entries of a directory, in no particular order. Shows everything that was made before the call; what is made or removed
    /// meanwhile may or may not show. Holds the whole listing in memory: a directory has as many entries as the store keeps files.
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
    pub stat: Stat,
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
