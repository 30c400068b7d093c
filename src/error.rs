//! What went wrong, and what the caller does next.
//!
//! An [`Error`] is a [`ErrorKind`] (which decides the next step), a sentence of context and, where there is one, the
//! error below. Modules upstairs never put their own types in here: they convert into a kind.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::version::{Epoch, Version};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate: a kind, a sentence of context, and the error below it if there is one.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What kind of failure it is. The kind, not the text, is what a program should branch on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong: a bad name, an empty limit, a missing family. Nothing was changed.
    InvalidInput,
    /// A key, a value, a name or a count is over its stated limit. Checked before anything is written.
    LimitExceeded {
        /// The most that is allowed.
        limit: u64,
        /// What was asked for.
        found: u64,
    },
    /// No such version can be read (any more, or yet).
    VersionNotFound {
        /// The version that was asked for.
        requested: Version,
        /// The oldest version that can be read.
        oldest: Version,
        /// The newest version that can be read.
        newest: Version,
    },
    /// The changes of these versions are only known together: what each of them did alone is gone. Ask for the difference
    /// between the two.
    Collapsed {
        /// The newest version below, which can still be read.
        from: Version,
        /// The oldest version from there on that can still be read.
        to: Version,
    },
    /// The store's one writer slot stayed taken until the deadline.
    Busy {
        /// How long the caller waited, in milliseconds.
        waited_ms: u64,
    },
    /// A newer writer has claimed the store; this one may never write again.
    Fenced {
        /// The epoch that took over.
        by: Epoch,
    },
    /// The commit was cut off: after reopening, the version is there whole or not at all.
    Indeterminate {
        /// The version that may or may not exist.
        version: Version,
    },
    /// A write to the log was not finished when its deadline came, or waits for room on a full disk behind one whose deadline came: it may
    /// become durable or not. The log's durable LSN settles it.
    Unknown {
        /// The LSN that the record has if it is written.
        lsn: u64,
    },
    /// Bytes on disk are not what was written.
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Byte offset in it.
        offset: u64,
        /// What was expected there.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A file that a version needs is not there.
    Missing {
        /// The file, or the pattern that no file fits.
        file: PathBuf,
    },
    /// The file has a format, codec or encryption that this build cannot read.
    Unsupported,
    /// The memory budget is used up and nobody could give some back before the deadline.
    MemoryLimit {
        /// Bytes asked for.
        requested_bytes: u64,
        /// Bytes of the limit.
        limit_bytes: u64,
    },
    /// Another process (or another handle of this one) holds the directory.
    Locked {
        /// Who holds it, as the holder described itself.
        holder: String,
    },
    /// The directory is not ours to change: it lacks our marker, is a symbolic link, or holds foreign files.
    Foreign {
        /// The directory or file.
        path: PathBuf,
    },
    /// An earlier failure left this object unusable; only abort or reopen helps.
    Poisoned,
    /// Cancelled by the caller.
    Cancelled,
    /// The name is already taken. With atomic creation: somebody else was first.
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The file is not there.
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The disk is full, or a quota is used up.
    DiskFull {
        /// The file or directory that could not grow.
        path: PathBuf,
    },
    /// The operating system refused for lack of permission, or the medium is read-only.
    PermissionDenied {
        /// The file or directory.
        path: PathBuf,
    },
    /// Any other failure of the operating system.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The standard library's name for it.
        kind: std::io::ErrorKind,
    },
    /// RocksDB failed. The index below the work directory is rebuilt from the checkpoint at the next open.
    Engine,
}

/// The system's number for a medium that fails.
const EIO: i32 = 5;

/// What the caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The same call may succeed later.
    Retry,
    /// The call has to be changed.
    FixCall,
    /// Reopen the store; what is durable is safe.
    Reopen,
    /// Stop writing: somebody else owns the store now.
    GiveUp,
    /// Damage on disk: repair it or restore the file from a copy.
    Restore,
}

impl Error {
    /// Makes an error of `kind` with a sentence of context.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { kind, context: context.into(), source: None }) }
    }

    /// Says that the call is wrong and why.
    pub fn invalid(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, context)
    }

    /// Says that `file` holds at `offset` something else than was written there.
    pub fn corrupt(
        file: impl Into<PathBuf>,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        let kind = ErrorKind::Corrupt { file: file.into(), offset, expected: expected.into(), found: found.into() };
        Self::new(kind, "the file is damaged")
    }

    /// Wraps an error of the operating system met while doing `doing` to `path`.
    pub fn io(path: impl AsRef<Path>, doing: &str, source: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let path = path.as_ref().to_path_buf();
        let context = format!("could not {doing}");
        let kind = match source.kind() {
            K::NotFound => ErrorKind::NotFound { path },
            K::AlreadyExists => ErrorKind::AlreadyExists { path },
            K::PermissionDenied | K::ReadOnlyFilesystem => ErrorKind::PermissionDenied { path },
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => ErrorKind::DiskFull { path },
            kind => ErrorKind::Io { path, kind },
        };
        Self::new(kind, context).with_source(source)
    }

    /// Adds the error below this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Puts another sentence in front of the context.
    #[must_use]
    pub fn context(mut self, sentence: impl fmt::Display) -> Self {
        self.inner.context = format!("{sentence}: {}", self.inner.context);
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// What the caller should do about it.
    #[must_use]
    pub fn advice(&self) -> Advice {
        match self.kind() {
            ErrorKind::Busy { .. }
            | ErrorKind::MemoryLimit { .. }
            | ErrorKind::DiskFull { .. }
            | ErrorKind::Locked { .. }
            | ErrorKind::Io { .. }
            | ErrorKind::Cancelled => Advice::Retry,
            ErrorKind::InvalidInput
            | ErrorKind::LimitExceeded { .. }
            | ErrorKind::VersionNotFound { .. }
            | ErrorKind::Collapsed { .. }
            | ErrorKind::Unsupported
            | ErrorKind::Foreign { .. }
            | ErrorKind::AlreadyExists { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::PermissionDenied { .. } => Advice::FixCall,
            ErrorKind::Indeterminate { .. } | ErrorKind::Unknown { .. } | ErrorKind::Poisoned | ErrorKind::Engine => {
                Advice::Reopen
            }
            ErrorKind::Fenced { .. } => Advice::GiveUp,
            ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } => Advice::Restore,
        }
    }

    /// Whether the error says that the file or name is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind(), ErrorKind::NotFound { .. })
    }

    /// Whether the error says that the medium does not give back what was written to it: a bad sector, say.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        let is_io = matches!(self.kind(), ErrorKind::Io { .. });
        let source = self.inner.source.as_ref().and_then(|source| source.downcast_ref::<std::io::Error>());
        // A simulated disk has no numbers.
        is_io
            && source.is_some_and(|source| {
                source.raw_os_error().map_or(source.kind() == std::io::ErrorKind::Other, |number| number == EIO)
            })
    }

    /// Whether the error says that the name was already taken.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        matches!(self.kind(), ErrorKind::AlreadyExists { .. })
    }

    /// Whether the error says that bytes on disk are damaged.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.context, self.inner.kind)?;
        match &self.inner.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidInput => write!(f, "invalid input"),
            Self::LimitExceeded { limit, found } => write!(f, "{found} is over the limit of {limit}"),
            Self::VersionNotFound { requested, newest: Version::EMPTY, .. } => {
                write!(f, "version {requested} is not there; the store has no version yet")
            }
            Self::VersionNotFound { requested, oldest, newest } => {
                write!(f, "version {requested} is not there; {oldest} to {newest} can be read")
            }
            Self::Collapsed { from, to } => {
                write!(f, "the changes of the versions ({from}, {to}] are only known together")
            }
            Self::Busy { waited_ms } => write!(f, "the writer slot was taken for {waited_ms} ms"),
            Self::Fenced { by } => write!(f, "epoch {by} has taken the store over; stop this writer"),
            Self::Unknown { lsn } => write!(f, "the record with LSN {lsn} may become durable or not"),
            Self::Indeterminate { version } => {
                write!(f, "version {version} may or may not have become durable; reopen to know")
            }
            Self::Corrupt { file, offset, expected, found } => {
                write!(f, "{} at byte {offset}: expected {expected}, found {found}", file.display())
            }
            Self::Missing { file } => write!(f, "{} is missing", file.display()),
            Self::Unsupported => write!(f, "not supported by this build"),
            Self::MemoryLimit { requested_bytes, limit_bytes } => {
                write!(f, "{requested_bytes} bytes do not fit into the limit of {limit_bytes}")
            }
            Self::Locked { holder } => write!(f, "locked by {holder}"),
            Self::Foreign { path } => write!(f, "{} is not ours to change", path.display()),
            Self::Poisoned => write!(f, "unusable after an earlier failure"),
            Self::Cancelled => write!(f, "cancelled"),
            Self::AlreadyExists { path } => write!(f, "{} already exists", path.display()),
            Self::NotFound { path } => write!(f, "{} does not exist", path.display()),
            Self::DiskFull { path } => write!(f, "no space left for {}", path.display()),
            Self::PermissionDenied { path } => write!(f, "no permission for {}", path.display()),
            Self::Io { path, kind } => write!(f, "{}: {kind}", path.display()),
            Self::Engine => write!(f, "the index failed"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.inner.kind)
            .field("context", &self.inner.context)
            .field("source", &self.inner.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
