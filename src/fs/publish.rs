//! Publishing: a file appears under its name whole and durable, or not at all.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::contract::{Disk, WriteFile};
use crate::error::{Error, ErrorKind, Result};

/// A file that is being written under a temporary name and gets its own by [`publish`](Self::publish).
///
/// Dropped without that, it removes its temporary file if it can; a crash leaves it behind under the temporary name.
#[derive(Debug)]
pub(crate) struct NewFile {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    temporary: PathBuf,
    target: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    /// An append or a sync failed: what the file holds is unknown.
    Broken,
    /// The rename was issued and not clearly refused: the temporary name may be the file's only one, or gone.
    Renamed,
}

/// Why a file was not published.
#[derive(Debug)]
pub enum PublishError {
    /// Nothing is to be seen under the name, now and after any crash. `AlreadyExists`: somebody else's file has it.
    NotPublished(Error),
    /// The file may be under its name or not, now or after a crash; if it is, it is whole. Only a reopening tells.
    Unknown(Error),
}

impl NewFile {
    /// Starts the file `name` in `directory` under `temporary_name`, which is in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` where the temporary name is taken, `NotFound` where the directory is missing.
    pub(crate) fn create(disk: &Arc<dyn Disk>, directory: &Path, name: &str, temporary_name: &str) -> Result<Self> {
        let temporary = directory.join(temporary_name);
        let file = disk.create_new(&temporary)?;
        Ok(Self {
            disk: Arc::clone(disk),
            directory: directory.to_path_buf(),
            temporary,
            target: directory.join(name),
            file: Some(file),
            state: State::Writing,
        })
    }

    /// Makes the bytes durable, then gives the file its name unless that is taken, then makes the name durable.
    ///
    /// # Errors
    /// See [`PublishError`]. The file cannot be published again: write a new one.
    pub(crate) fn publish(mut self) -> std::result::Result<(), PublishError> {
        self.sync().map_err(PublishError::NotPublished)?; // the bytes are durable
        self.file = None;
        match self.disk.rename_new(&self.temporary, &self.target) {
            Ok(()) => self.state = State::Renamed, // the file is visible
            Err(error) if refuses(&error) => return Err(PublishError::NotPublished(error)),
            Err(error) => {
                self.state = State::Renamed;
                return Err(PublishError::Unknown(error));
            }
        }
        self.disk.sync_dir(&self.directory).map_err(PublishError::Unknown) // the name is durable
    }

    /// The path under which the file will be published.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    fn attempt(&mut self, act: impl FnOnce(&mut dyn WriteFile) -> Result<()>) -> Result<()> {
        let (State::Writing, Some(file)) = (self.state, self.file.as_deref_mut()) else {
            let context = format!("could not go on writing {}", self.target.display());
            return Err(Error::new(ErrorKind::Poisoned, context));
        };
        let done = act(file);
        if done.is_err() {
            self.state = State::Broken;
        }
        done
    }
}

impl WriteFile for NewFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.attempt(|file| file.append(bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.attempt(|file| file.sync())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.state != State::Renamed
            && let Err(error) = self.disk.remove(&self.temporary)
        {
            tracing::debug!(file = %self.temporary.display(), %error, "a temporary file stays behind");
        }
    }
}

impl PublishError {
    /// The error, whatever it means for the file.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::NotPublished(error) | Self::Unknown(error) => error,
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished(error) => write!(f, "not published: {error}"),
            Self::Unknown(error) => write!(f, "may or may not be published: {error}"),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPublished(error) | Self::Unknown(error) => Some(error),
        }
    }
}

/// Whether a rename that failed so has certainly not happened: the file system looked and said no.
fn refuses(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::PermissionDenied { .. }
            | ErrorKind::DiskFull { .. }
            | ErrorKind::InvalidInput
    )
}

/// Makes the directory `relative` below `root`, level by level, and makes every level durable before the next.
///
/// Levels that are already there are synced too: whoever made them may have been killed before its sync.
///
/// # Errors
/// `InvalidInput` where `relative` is not a plain path downwards; `NotFound` where `root` is missing; `AlreadyExists` where a level is a
/// file or a symbolic link.
pub(crate) fn create_dirs(disk: &dyn Disk, root: &Path, relative: &Path) -> Result<PathBuf> {
    if !relative.components().all(|component| matches!(component, Component::Normal(_))) {
        return Err(Error::invalid(format!("{} does not lead downwards", relative.display())));
    }
    let mut path = root.to_path_buf();
    for level in relative.components() {
        let parent = path.clone();
        path.push(level);
        disk.create_dir(&path)?;
        disk.sync_dir(&parent)?;
    }
    Ok(path)
}
