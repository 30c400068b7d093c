//! The commit protocol, step by step.

use super::directory::StoreDirectory;
use crate::catalog::{RunName, fenced_by};
use crate::entry::Families;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::PublishError;
use crate::overlay::Overlay;
use crate::run::{RunHeader, RunWriter, WriterOptions};
use crate::version::{Epoch, Mark, RunKind, StoreUid, Version, VersionId};

/// What a transaction hands over to be committed.
#[derive(Debug)]
pub(super) struct ChangeSet<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) families: &'a Families,
    pub(super) metadata: &'a [u8],
}

/// On whose behalf, and on top of what, a commit is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer {
    pub(super) uid: StoreUid,
    pub(super) epoch: Epoch,
    pub(super) parent: Mark,
}

impl Writer {
    /// The version that this writer's commit makes.
    pub(super) fn to(&self) -> VersionId {
        VersionId::new(self.parent.at.version.next(), self.epoch)
    }
}

/// Makes `changes` the next version. When this returns `Ok`, the version is durable, visible, and on the lineage for ever
/// (unless its own writer rolls back): it may be acknowledged. Making the index follow comes after, and cannot fail the commit.
///
/// A crash leaves after step 1 a temporary that nobody reads; after step 2 a whole version, which the next opener finds at the
/// head, although nobody was told: `Indeterminate`.
///
/// # Errors
/// `Fenced`, `Indeterminate`, or an error that says that the version does not exist. After any of them the caller must claim
/// a new epoch before it writes again, so that no file name is ever used twice.
pub(super) fn commit(directory: &StoreDirectory, writer: &Writer, changes: &ChangeSet<'_>) -> Result<RunName> {
    let to = writer.to();
    let name = RunName::single(to)?;
    let _goes_first = directory.precedence().go_first();

    // 1. Durable: the delta is written under a temporary name; `publish` syncs it before anything else.
    let mut file = directory.create_run(&name)?;
    write_delta(directory, writer, changes, &name, &mut *file)?;

    // 2. Visible: an atomic create that replaces nothing, then the directory is synced.
    file.publish().map_err(|error| unpublished(error, directory, writer))?;

    // 3. Fenced? Whoever opens lists once more after its claim, so one of us sees the other. An error here leaves the
    //    question open, and so the commit.
    let forks = directory.fork_epochs().map_err(|error| indeterminate(error, to.version))?;
    if let Some(by) = fenced_by(forks, writer.epoch) {
        return Err(Error::new(ErrorKind::Fenced { by }, format!("version {} is not acknowledged", to.version)));
    }

    // 4. Acknowledged. The provider now puts the delta on top of its layers and folds it into the index later.
    Ok(name)
}

fn write_delta(
    directory: &StoreDirectory,
    writer: &Writer,
    changes: &ChangeSet<'_>,
    name: &RunName,
    file: &mut dyn crate::checkpoint::PendingFile,
) -> Result<()> {
    let to = writer.to();
    let id = directory.new_run_id();
    let header = RunHeader {
        kind: RunKind::Delta,
        from: writer.parent.at.version,
        to: to.version,
        epoch: to.epoch,
        id,
        tip: id,
        parent: writer.parent.tip,
        uid: writer.uid,
        store: directory.id().clone(),
        families: changes.families.clone(),
        codec: directory.delta_codec(),
    };
    let mut run = RunWriter::new(file, &directory.display_path(name), &header, WriterOptions::packed())?;
    changes.overlay.for_each(|key, change| run.add(key, change))?;
    run.range_tombstones(&changes.overlay.ranges())?;
    run.finish(changes.metadata)?;
    Ok(())
}

fn unpublished(error: PublishError, directory: &StoreDirectory, writer: &Writer) -> Error {
    let version = writer.to().version;
    match error {
        // Whoever takes over sweeps what we have half-written: the reason is then not that a file is gone.
        PublishError::NotPublished(error) if error.is_not_found() => {
            match directory.fork_epochs().ok().and_then(|forks| fenced_by(forks, writer.epoch)) {
                Some(by) => Error::new(ErrorKind::Fenced { by }, format!("version {version} was not committed"))
                    .with_source(error),
                None => error.context(format!("version {version} was not committed")),
            }
        }
        // Only an earlier, indeterminate attempt of this very epoch can have taken the name.
        PublishError::NotPublished(error) if error.is_already_exists() => indeterminate(error, version),
        PublishError::NotPublished(error) => error.context(format!("version {version} was not committed")),
        PublishError::Unknown(error) => indeterminate(error, version),
    }
}

fn indeterminate(error: Error, version: Version) -> Error {
    Error::new(ErrorKind::Indeterminate { version }, "the commit was cut off").with_source(error)
}
