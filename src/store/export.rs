//! A version as one file that needs no other, and a store that starts from such a file.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::StoreDirectory;
use super::history::{History, chain_of, reading_directory};
use super::load::merged;
use super::open_chain::OpenChain;
use super::options::StoreOptions;
use super::rewrite::snapshot_header;
use crate::catalog::{RunName, Wanted, fenced_by};
use crate::checkpoint::{Checkpoint, LocalCheckpoint, MAX_COMPONENT_BYTES, PendingFile};
use crate::entry::{Cursor, KeyRange, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{Disk, PublishError, ReadFile, RealDisk};
use crate::run::{Access, Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{RunKind, Version, VersionId};

/// A version that was written as one file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The version.
    pub version: Version,
    /// The file.
    pub file: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// The keys in it.
    pub entries: u64,
    /// Damaged files that were passed over, because others hold the same.
    pub passed_over: Vec<PathBuf>,
}

impl History {
    /// Writes the whole state of `version` as one file into the directory `dir`, which is made if it is missing and its
    /// parent is there, and gone again after a failure. The file needs no other: [`import`](Self::import) starts a store from it.
    ///
    /// `observe` hears of the bytes of keys and values written so far, and may end it. The memory is that of a few pages. The
    /// file appears whole or not at all; a crash may leave a file `.tmp-…` beside it.
    ///
    /// # Errors
    /// `VersionNotFound`; `InvalidInput` for version 0, which has nothing to export; `AlreadyExists` where the file is there
    /// already; `Cancelled`; what the disks report.
    pub fn export(
        &self,
        version: Version,
        dir: impl AsRef<Path>,
        observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Exported> {
        let (disk, dir) = (RealDisk::new(), dir.as_ref());
        // Whatever can be refused without the directory is refused before it is made.
        runs_to_export(&self.directory, version)?;
        let was_there = disk.stat(dir)?.is_some();
        let exported = self.export_to(version, &LocalCheckpoint::open(dir)?, observe);
        if exported.is_err() && !was_there {
            _ = disk.remove_dir(dir); // unless somebody has put something there meanwhile
        }
        exported
    }

    /// As [`export`](Self::export), into the root of `target`.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub fn export_to(
        &self,
        version: Version,
        target: &dyn Checkpoint,
        mut observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Exported> {
        export(&self.directory, version, target, &mut observe)
    }
}

/// Writes `version` into the root of `target`.
fn export(
    directory: &StoreDirectory,
    version: Version,
    target: &dyn Checkpoint,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Exported> {
    let chain = runs_to_export(directory, version)?;
    let runs = chain.newest_first();
    let newest = runs.first().ok_or_else(|| Error::invalid("the version has no runs"))?;
    let name = file_name(directory.id(), version);
    let file = target.display_path(&name);
    if target.length(&name)?.is_some() {
        let path = file;
        return Err(Error::new(ErrorKind::AlreadyExists { path }, "the version was not exported"));
    }
    // A random name: of two exports of one version at once, one is told that the file is there.
    let mut pending = target.create(&name, &format!(".tmp-{}", directory.new_run_id()))?;
    let header = snapshot_header(newest.header(), directory.new_run_id());
    let written = copy(&mut *pending, &file, &header, &mut merged(runs.iter()).live(), newest.metadata(), observe)?;
    pending.publish().map_err(|error| error.into_error().context("the version was not exported"))?;
    let passed_over = directory.passed_over(&chain);
    Ok(Exported { version, file, bytes: written.0, entries: written.1, passed_over })
}

/// The runs of a version that can be exported.
fn runs_to_export(directory: &StoreDirectory, version: Version) -> Result<OpenChain> {
    if version == Version::EMPTY {
        return Err(Error::invalid("version 0 is empty: there is nothing to export"));
    }
    chain_of(directory, version)
}

/// A file that an export wrote, checked from end to end: what a store can start from.
#[derive(Debug)]
pub struct ExportedFile {
    source: Arc<Run>,
}

impl ExportedFile {
    /// Opens `file` and checks every byte of it. `observe` hears of the bytes that were checked, and may end it.
    ///
    /// # Errors
    /// `Corrupt` for a damaged file, `InvalidInput` for a run that is no snapshot; `Cancelled`; what the disk reports.
    pub fn check(file: impl AsRef<Path>, observe: impl FnMut(u64) -> ControlFlow<()>) -> Result<Self> {
        Self::check_opened(RealDisk::new().open(file.as_ref())?, file, observe)
    }

    /// As [`check`](Self::check), of a file of any disk; `path` is for errors.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_opened(
        file: Arc<dyn ReadFile>,
        path: impl AsRef<Path>,
        mut observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Self> {
        // Not mapped: whoever owns that file may cut it short while it is read.
        let source = Run::open(file, path.as_ref().to_path_buf(), Access::Positioned)?;
        if source.header().kind != RunKind::Snapshot {
            return Err(Error::invalid(format!("{} holds changes, not a whole state", path.as_ref().display())));
        }
        source.verify(&mut observe)?;
        Ok(Self { source })
    }

    /// The version that it holds.
    #[must_use]
    pub fn version(&self) -> Version {
        self.source.header().to_id().version
    }

    /// How many bytes of keys and values it holds.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        let properties = self.source.properties();
        properties.key_bytes.saturating_add(properties.value_bytes)
    }

    /// Starts the store `id` in `checkpoint` with it; see [`History::import`]. `observe` hears of the bytes of keys and values that
    /// were written, and may end it.
    ///
    /// # Errors
    /// As [`History::import`].
    pub fn start(
        &self,
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        mut observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<History> {
        let directory = reading_directory(checkpoint.into(), id, &StoreOptions::default());
        start_from(&directory, &self.source, &mut observe)?;
        Ok(History::of(&Arc::new(directory), &Arc::default()))
    }
}

impl History {
    /// Starts the store `id` in `checkpoint` from the file that an [`export`](Self::export) wrote: with its state, at its
    /// version, and with nothing below. The new store has an identity of its own, so that files of the two never mix.
    ///
    /// Every byte of the file is checked first. `observe` hears of the bytes that were checked and then of those that were
    /// written, and may end it. After a failure the store is still empty, and importing can be repeated.
    ///
    /// # Errors
    /// `AlreadyExists` where the store has a version already; `Corrupt` for a damaged file; `InvalidInput` for a run that is no
    /// snapshot; `Fenced` where somebody else opens the store meanwhile; `Cancelled`; what the disks report.
    pub fn import(
        file: impl AsRef<Path>,
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Self> {
        let opened = RealDisk::new().open(file.as_ref())?;
        Self::import_from(opened, file, checkpoint, id, observe)
    }

    /// As [`import`](Self::import), from a file of any disk; `path` is for errors.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn import_from(
        file: Arc<dyn ReadFile>,
        path: impl AsRef<Path>,
        checkpoint: impl Into<Arc<dyn Checkpoint>>,
        id: StateStoreId,
        mut observe: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Self> {
        ExportedFile::check_opened(file, path, &mut observe)?.start(checkpoint, id, observe)
    }
}

/// Claims the empty store, and commits a whole state to it instead of changes: the steps are those of a commit.
fn start_from(
    directory: &StoreDirectory,
    source: &Arc<Run>,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let taken = || Error::new(ErrorKind::AlreadyExists { path: directory.root() }, "the store is not empty");
    // Before the claim, which would fence a writer for nothing.
    if directory.catalog()?.head() != VersionId::ROOT {
        return Err(taken());
    }
    let claimed = directory.claim(Wanted::Newest, None, "an import")?;
    if claimed.head != VersionId::ROOT {
        return Err(taken());
    }
    let header = RunHeader {
        epoch: claimed.epoch,
        uid: claimed.uid,
        store: directory.id().clone(),
        ..snapshot_header(source.header(), directory.new_run_id())
    };
    let name = RunName::snapshot(header.to_id())?;
    let pending = write_first(directory, &name, &header, source, observe);
    let pending = pending.inspect_err(|_| directory.give_back(claimed.epoch))?;
    let indeterminate = |error| {
        Error::new(ErrorKind::Indeterminate { version: header.to }, "the import was cut off").with_source(error)
    };
    pending.publish().map_err(|error| match error {
        PublishError::NotPublished(error) => error.context("the store was not started"),
        PublishError::Unknown(error) => indeterminate(error),
    })?;
    match fenced_by(directory.fork_epochs().map_err(indeterminate)?, claimed.epoch) {
        None => Ok(()),
        Some(by) => Err(Error::new(ErrorKind::Fenced { by }, "somebody else has opened the store meanwhile")),
    }
}

/// Writes the run that a store starts with, without publishing it.
fn write_first(
    directory: &StoreDirectory,
    name: &RunName,
    header: &RunHeader,
    source: &Arc<Run>,
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Box<dyn PendingFile>> {
    let mut pending = directory.create_run(name)?;
    let mut content = source.cursor(KeyRange::ALL);
    copy(&mut *pending, &directory.display_path(name), header, &mut content, source.metadata(), observe)?;
    Ok(pending)
}

/// Writes a run; says how long it is and how many entries it has.
fn copy(
    file: &mut dyn PendingFile,
    path: &Path,
    header: &RunHeader,
    content: &mut dyn Cursor,
    metadata: &[u8],
    observe: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(u64, u64)> {
    let mut run = RunWriter::new(file, path, header, WriterOptions::aligned())?;
    let mut bytes = 0_u64;
    while content.advance()? {
        run.add(content.key(), content.change())?;
        let value = content.change().into_value().map_or(0, <[u8]>::len);
        bytes = bytes.saturating_add((content.key().len() + value) as u64);
        if observe(bytes).is_break() {
            return Err(Error::new(ErrorKind::Cancelled, "writing the state was ended"));
        }
    }
    let written = run.finish(metadata)?;
    Ok((written.file_bytes, written.properties.entries))
}

/// `<operator>.<partition>.<name>.<version>.snapshot`, without the operator where that would be too long for a file name.
fn file_name(id: &StateStoreId, version: Version) -> String {
    let short = format!("{}.{}.{version}.snapshot", id.partition(), id.name());
    let long = format!("{}.{short}", id.operator());
    if long.len() <= MAX_COMPONENT_BYTES { long } else { short }
}
