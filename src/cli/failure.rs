//! What can go wrong, and the exit code that says so.

use std::io;

use super::args::{Command, Place};
use super::spelling::quoted;
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
    /// Something else has the path that was to be written to.
    Taken(String),
    /// The store or the disk reported an error.
    Store(Error),
    /// The output could not be written.
    Output(io::Error),
}

/// What a command is about, as it was typed, so that hints can be copied.
#[derive(Debug)]
pub(super) enum Subject {
    /// Stores: the checkpoint, and the one store where it was named.
    Stores(String),
    /// A log: its folder.
    Log(String),
    /// The file of an export.
    Exported,
}

impl Subject {
    /// What `command` is about.
    pub(super) fn of(command: &Command) -> Self {
        match command {
            Command::Ls(args) => Self::stores(&args.place),
            Command::Versions(args) => Self::stores(&args.place),
            Command::Get(args) => Self::stores(&args.place),
            Command::Scan(args) => Self::stores(&args.place),
            Command::Changes(args) => Self::stores(&args.place),
            Command::Diff(args) => Self::stores(&args.place),
            Command::Stats(args) => Self::stores(&args.place),
            Command::Verify(args) => Self::stores(&args.place),
            Command::Repair(args) => Self::stores(&args.place),
            Command::Compact(args) => Self::stores(&args.place),
            Command::Retire(args) => Self::stores(&args.place),
            Command::Export(args) => Self::stores(&args.place),
            Command::Import(_) => Self::Exported,
            Command::Log { command } => Self::Log(quoted(command.dir())),
        }
    }

    fn stores(place: &Place) -> Self {
        Self::Stores(place.words())
    }
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
            Self::Taken(_) => Exit::Refused,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Failed,
            Self::Store(error) => exit_of(error.kind()),
        }
    }

    /// The text, without an end of line; `None` where nothing is to be said.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Usage(text) | Self::NotFound(text) | Self::Taken(text) => Some(text.clone()),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(error) => Some(format!("the output could not be written: {error}")),
            Self::Store(error) => {
                let text = error.to_string();
                // That the input is invalid is what the text says.
                let suffix = format!(": {}", ErrorKind::InvalidInput);
                Some(text.strip_suffix(&suffix).map_or(text.clone(), Into::into))
            }
        }
    }

    /// What to do next, where the text does not say it.
    pub(super) fn hint(&self, subject: &Subject) -> Option<String> {
        let Self::Store(error) = self else { return None };
        match (error.kind(), subject) {
            (ErrorKind::VersionNotFound { .. }, Subject::Stores(words)) => {
                Some(format!("`alluvium versions {words}` lists what can be read"))
            }
            (ErrorKind::Collapsed { from, to }, Subject::Stores(words)) => {
                Some(format!("`alluvium diff {words} {from} {to}` shows what is still known of these versions"))
            }
            (ErrorKind::Unsupported, _) => Some("a newer build may read it".into()),
            _ => match (error.advice(), subject) {
                (Advice::Restore, Subject::Stores(words)) => Some(format!(
                    "`alluvium verify {words}` finds all damage, `alluvium repair {words}` mends what can be mended"
                )),
                (Advice::Restore, Subject::Log(dir)) => Some(format!(
                    "`alluvium log verify {dir}` finds all damage, `alluvium log salvage {dir} --to …` copies what can still be read"
                )),
                (Advice::Restore, Subject::Exported) => {
                    Some("only a file that `alluvium export` wrote can be imported".into())
                }
                (Advice::Retry, _) => Some("the same command may succeed later".into()),
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
        | ErrorKind::Foreign { .. }
        | ErrorKind::Cancelled
        | ErrorKind::Poisoned => Exit::Refused,
        ErrorKind::MemoryLimit { .. }
        | ErrorKind::DiskFull { .. }
        | ErrorKind::PermissionDenied { .. }
        | ErrorKind::Io { .. }
        | ErrorKind::Engine => Exit::Failed,
    }
}
