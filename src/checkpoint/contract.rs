//! [`Checkpoint`]: what the durable home of the runs must be able to do, wherever it is.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::fs::{DirEntry, DiskLock, PublishError, ReadFile, WriteFile};

/// The longest path within a checkpoint, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// The longest name of a file or directory in it, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A tree of immutable files: created once and whole, read, listed, deleted, never changed.
///
/// Paths are relative to its root, with `/` between the names; see [`check_path`] for what a name may be. The empty path is
/// the root itself, for [`list`](Self::list) and [`sync`](Self::sync).
///
/// The fencing protocol stands on two promises: of several creators of one path exactly one wins, and a listing shows
/// everything that was published before it began. What passes [`conformance`](super::conformance) may be used.
pub trait Checkpoint: Send + Sync + Debug + 'static {
    /// Starts a file that will appear at `path`. Missing directories are made, and made durable, before.
    ///
    /// Until it is published it goes by the name `temporary` in the same directory, where a later writer can find and sweep
    /// what a crash left. No two attempts may use one temporary name.
    ///
    /// # Errors
    /// `InvalidInput` or `LimitExceeded` for a path that breaks the rules, with nothing changed; `AlreadyExists` where the
    /// temporary name is taken; else what the medium reports.
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>>;

    /// Opens a published file.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>>;

    /// The entries of a directory, temporaries among them, in no particular order; none where there is no such directory.
    ///
    /// # Errors
    /// `NotFound` where the root itself is gone: that must never look like a store without versions.
    fn list(&self, dir: &str) -> Result<Vec<DirEntry>>;

    /// The length of a published file in bytes; `None` where there is none.
    ///
    /// # Errors
    /// What the medium reports, besides absence.
    fn length(&self, path: &str) -> Result<Option<u64>>;

    /// Deletes a file. The deletion may come undone by a crash.
    ///
    /// # Errors
    /// `NotFound` where there is none.
    fn delete(&self, path: &str) -> Result<()>;

    /// Whether the temporary file at `path` was left by a writer that is gone. `false` where that cannot be known.
    ///
    /// # Errors
    /// What the medium reports, besides absence.
    fn is_abandoned(&self, path: &str) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Whether somebody is known to be writing the temporary file at `path`.
    ///
    /// # Errors
    /// What the medium reports, besides absence.
    fn is_held(&self, path: &str) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Holds a published file against everybody else who asks, until the lock is dropped or the process ends; `None` where somebody else holds
    /// it. Only repairs ask. Where that cannot be done, everybody gets a lock.
    ///
    /// # Errors
    /// `NotFound` where there is no file; what the medium reports.
    fn hold(&self, path: &str) -> Result<Option<DiskLock>> {
        let _ = path;
        Ok(Some(DiskLock::none()))
    }

    /// Deletes the temporary file at `path` if its writer is gone, and says whether it was. A writer that is at work keeps its file.
    ///
    /// # Errors
    /// What the medium reports, besides absence.
    fn delete_abandoned(&self, path: &str) -> Result<bool> {
        let _ = path;
        Ok(false)
    }

    /// Makes durable what a listing of `dir` showed. Whoever published it may have died before its own sync, so a writer
    /// does this before it builds on what it found.
    ///
    /// # Errors
    /// What the medium reports. A failed sync must not be repeated in the hope of better news.
    fn sync(&self, dir: &str) -> Result<()>;

    /// The path as errors show it to people.
    fn display_path(&self, path: &str) -> PathBuf;
}

/// A file that is being written and is not to be seen yet. Dropped without being published, it is thrown away.
pub trait PendingFile: WriteFile {
    /// Makes the bytes durable, gives the file its path unless that is taken, and makes that durable too.
    ///
    /// # Errors
    /// [`PublishError::NotPublished`] (with `AlreadyExists` for whoever was not first): the file is not there and never will be;
    /// [`PublishError::Unknown`]: only a look after reopening tells.
    fn publish(self: Box<Self>) -> std::result::Result<(), PublishError>;
}

/// Checks a path within a checkpoint: one or more names with `/` between them, each of ASCII letters, digits, `.`, `_` and
/// `-`, neither `.` nor `..`, at most 255 bytes long, and at most 1024 together.
///
/// # Errors
/// `InvalidInput` or `LimitExceeded`; the text says which rule is broken.
pub fn check_path(path: &str) -> Result<()> {
    check_length(path, MAX_PATH_BYTES)?;
    path.split('/').try_for_each(check_component)
}

/// Checks one name of a path, as [`check_path`] does.
///
/// # Errors
/// As [`check_path`].
pub fn check_component(name: &str) -> Result<()> {
    check_length(name, MAX_COMPONENT_BYTES)?;
    if matches!(name, "" | "." | "..") {
        return Err(Error::invalid(format!("{name:?} is no name for a file in a checkpoint")));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
        Some(bad) => Err(Error::invalid(format!("the name {name:?} in a checkpoint holds {bad:?}"))),
        None => Ok(()),
    }
}

fn check_length(text: &str, limit: usize) -> Result<()> {
    if text.len() <= limit {
        return Ok(());
    }
    let kind = ErrorKind::LimitExceeded { limit: limit as u64, found: text.len() as u64 };
    Err(Error::new(kind, "a path in a checkpoint is too long"))
}
