//! What can go wrong, and the exit code that says so.

use std::io;

use crate::error::{Advice, Error, ErrorKind};

/// How the tool ended, as its exit code says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Damage was found, or a file is missing.
    Damaged = 1,
    /// The arguments are wrong.
    Usage = 2,
    /// There is no such checkpoint, store, version, family or key.
    NotFound = 3,
    /// Refused for now: somebody else holds or has changed the store, or the target already exists.
    Refused = 4,
    /// The machine failed: disk full, no permission, I/O error.
    Failed = 5,
}

impl Exit {
    /// The exit code.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Why a command could not do what it was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments are wrong, and why.
    Usage(String),
    /// What was asked for is not there.
    NotFound(String),
    /// The store or the disk reported an error.
    Store(Error),
    /// The output could not be written.
    Output(io::Error),
}

/// The result of everything here that can fail.
pub(super) type Outcome<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// The exit code that it ends with. Whoever reads no further (`| head`) has what it wanted.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Failed,
            Self::Store(error) => exit_of(error.kind()),
        }
    }

    /// The text, without an end of line; `None` where nothing is to be said.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Usage(text) | Self::NotFound(text) => Some(text.clone()),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("the output could not be written: {error}")),
            Self::Store(error) => Some(error.to_string()),
        }
    }

    /// What to do next, where the text does not say it.
    pub(super) fn hint(&self) -> Option<String> {
        let Self::Store(error) = self else { return None };
        match error.kind() {
            ErrorKind::VersionNotFound { .. } => Some("`alluvium versions` lists what can be read".into()),
            ErrorKind::Collapsed { from, to } => {
                Some(format!("`alluvium diff … {from} {to}` shows what is still known of these versions"))
            }
            ErrorKind::Unsupported => Some("a newer build may read it".into()),
            _ => match error.advice() {
                Advice::Restore => {
                    Some("`alluvium verify` finds all damage, `alluvium repair` mends what can be mended".into())
                }
                Advice::Retry => Some("the same command may succeed later".into()),
                _ => None,
            },
        }
    }
}

fn exit_of(kind: &ErrorKind) -> Exit {
    match kind {
        ErrorKind::InvalidInput | ErrorKind::LimitExceeded { .. } => Exit::Usage,
        ErrorKind::VersionNotFound { .. } | ErrorKind::Collapsed { .. } | ErrorKind::NotFound { .. } => Exit::NotFound,
        ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } | ErrorKind::Unsupported => Exit::Damaged,
        ErrorKind::Busy { .. }
        | ErrorKind::Fenced { .. }
        | ErrorKind::Locked { .. }
        | ErrorKind::Indeterminate { .. }
        | ErrorKind::Unknown { .. }
        | ErrorKind::AlreadyExists { .. }
        | ErrorKind::Cancelled
        | ErrorKind::Poisoned => Exit::Refused,
        ErrorKind::Foreign { .. }
        | ErrorKind::MemoryLimit { .. }
        | ErrorKind::DiskFull { .. }
        | ErrorKind::PermissionDenied { .. }
        | ErrorKind::Io { .. }
        | ErrorKind::Engine => Exit::Failed,
    }
}
