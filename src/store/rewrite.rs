//! Writing many runs as one: snapshots and collapsed deltas.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::directory::StoreDirectory;
use super::load::merged_with_ranges;
use super::open_chain::{OpenChain, name_of};
use crate::backend::{Patience, Precedence};
use crate::catalog::RunName;
use crate::checkpoint::PendingFile;
use crate::clock::Clock;
use crate::entry::Cursor;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{PublishError, WriteFile};
use crate::ranges::RangeSet;
use crate::run::{Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{Mark, RunId, RunKind, Version};

/// Hears how many bytes have been written so far; it may wait, and it may end it all.
pub(crate) type Observer<'o> = &'o (dyn Fn(u64) -> ControlFlow<()> + Sync);

/// So much is made durable at once. A whole snapshot's worth would make every commit's sync wait behind it.
const SYNCED_BYTES: u64 = 512 << 10;

/// A run that is written whole and not to be seen yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) name: RunName,
    file: Box<dyn PendingFile>,
}

impl Prepared {
    /// Makes the bytes durable, under the temporary name still.
    ///
    /// # Errors
    /// What the disk reports; the run is to be thrown away then.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    /// Gives the run its name. Where somebody else made the same content under the same name, that does, as long as it can be opened.
    ///
    /// # Errors
    /// After a failure nothing is visible, or the whole file is; both are right.
    pub(crate) fn publish(self, directory: &StoreDirectory) -> Result<RunName> {
        let Self { name, file } = self;
        match file.publish() {
            Ok(()) => Ok(name),
            Err(PublishError::NotPublished(error)) if error.is_already_exists() => {
                let opened = directory.open_run(&name).map(|_| name);
                opened.map_err(|error| {
                    error.context(format!("the run {name} is there, but is of no use: repair the store"))
                })
            }
            Err(PublishError::NotPublished(error) | PublishError::Unknown(error)) => {
                Err(error.context(format!("the run {name} was not made")))
            }
        }
    }
}

impl StoreDirectory {
    /// Puts `made` in the place of the damaged run `id`; whoever holds that open goes on with what it holds.
    ///
    /// Under a lock on the damaged file, since somebody else may be about to do the same: what they have made may be what other
    /// files were let go for by now, and is left alone.
    pub(crate) fn replace_damaged(&self, name: &RunName, id: Option<RunId>, made: Prepared) -> Result<()> {
        self.sync()?; // what it was made anew from may be visible only
        let path = self.file(name);
        let _lock = match self.checkpoint.hold(&path) {
            Ok(Some(lock)) if self.run_id(name) == id => Some(lock),
            Ok(_) => return Ok(()),
            Err(error) if error.is_not_found() => None, // somebody has died half-way
            Err(error) => return Err(error),
        };
        self.lock_runs().remove(name);
        match self.checkpoint.delete(&path) {
            Err(error) if error.is_not_found() => {}
            outcome => outcome?,
        }
        // Durably, or the new file would be published under a name that a crash brings back.
        self.sync()?;
        made.publish(self).map(drop)
    }
}

/// Writes the whole state of the chain as one snapshot. Streams: the memory is that of a few pages and one stripe.
///
/// Gives `None` where there is nothing to do: version 0, or a chain that already is one snapshot.
///
/// # Errors
/// As [`Prepared::publish`]; `Cancelled` where the observer says so.
pub(crate) fn write_snapshot(
    directory: &StoreDirectory,
    chain: &OpenChain,
    observer: Observer<'_>,
) -> Result<Option<RunName>> {
    let is_snapshot = matches!(chain.newest_first().as_slice(), [only] if only.header().kind == RunKind::Snapshot);
    if is_snapshot {
        return Ok(None);
    }
    prepare_snapshot(directory, chain, observer)?.map(|made| made.publish(directory)).transpose()
}

/// As [`write_snapshot`], without giving it its name.
///
/// # Errors
/// As [`write_snapshot`].
pub(crate) fn prepare_snapshot(
    directory: &StoreDirectory,
    chain: &OpenChain,
    observer: Observer<'_>,
) -> Result<Option<Prepared>> {
    let runs = chain.newest_first();
    let Some(newest) = runs.first().filter(|_| chain.mark != Mark::ROOT) else { return Ok(None) };
    let header = snapshot_header(newest.header(), directory.new_run_id());
    let (content, _) = merged_with_ranges(&runs);
    prepare(directory, &header, &mut content.live(), &RangeSet::default(), newest.metadata(), observer).map(Some)
}

/// The header of a snapshot of the version that a run leads to.
pub(super) fn snapshot_header(newest: &RunHeader, id: RunId) -> RunHeader {
    RunHeader { kind: RunKind::Snapshot, from: Version::EMPTY, id, parent: RunId::NONE, ..newest.clone() }
}

/// Writes the single deltas above the base as one collapsed delta; `None` where there are fewer than two.
///
/// # Errors
/// As [`write_snapshot`].
pub(super) fn write_collapsed(
    directory: &StoreDirectory,
    chain: &OpenChain,
    observer: Observer<'_>,
) -> Result<Option<RunName>> {
    let newest_first: Vec<Arc<Run>> = chain.singles.iter().rev().cloned().collect(); // at most the tail
    collapse(directory, &newest_first, observer)
}

/// Writes adjacent deltas, newest first, as one; `None` where there are fewer than two.
///
/// # Errors
/// As [`write_snapshot`].
pub(crate) fn collapse(
    directory: &StoreDirectory,
    newest_first: &[Arc<Run>],
    observer: Observer<'_>,
) -> Result<Option<RunName>> {
    prepare_collapsed(directory, newest_first, observer)?.map(|made| made.publish(directory)).transpose()
}

/// As [`collapse`], without giving it its name.
///
/// # Errors
/// As [`write_snapshot`].
pub(crate) fn prepare_collapsed(
    directory: &StoreDirectory,
    newest_first: &[Arc<Run>],
    observer: Observer<'_>,
) -> Result<Option<Prepared>> {
    let [newest, .., oldest] = newest_first else { return Ok(None) };
    let below = oldest.header();
    let header = RunHeader {
        kind: RunKind::Delta,
        from: below.from,
        id: directory.new_run_id(),
        parent: below.parent,
        ..newest.header().clone()
    };
    let (mut content, ranges) = merged_with_ranges(newest_first);
    if header.from == Version::EMPTY {
        // Nothing lies below: what was removed leaves no mark.
        return prepare(directory, &header, &mut content.live(), &RangeSet::default(), newest.metadata(), observer)
            .map(Some);
    }
    prepare(directory, &header, &mut content, &ranges, newest.metadata(), observer).map(Some)
}

fn prepare(
    directory: &StoreDirectory,
    header: &RunHeader,
    content: &mut dyn Cursor,
    ranges: &RangeSet,
    metadata: &[u8],
    observer: Observer<'_>,
) -> Result<Prepared> {
    let name = name_of(header)?;
    let mut file = directory.create_rewritten(&name)?;
    let (precedence, clock) = (directory.precedence(), directory.clock());
    let mut telling = Observed {
        file: &mut *file,
        observer,
        precedence,
        clock,
        patience: Patience::default(),
        written: 0,
        unsynced: 0,
    };
    let mut run = RunWriter::new(&mut telling, &directory.display_path(name), header, WriterOptions::aligned())?;
    while content.advance()? {
        run.add(content.key(), content.change())?;
    }
    run.range_tombstones(ranges)?;
    run.finish(metadata)?;
    Ok(Prepared { name, file })
}

/// Tells how much has been written, and makes it durable bit by bit.
struct Observed<'f> {
    file: &'f mut dyn PendingFile,
    observer: Observer<'f>,
    precedence: &'f Precedence,
    clock: &'f dyn Clock,
    /// For what will be made durable next.
    patience: Patience,
    written: u64,
    unsynced: u64,
}

impl std::fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("file", &self.file).field("written", &self.written).finish_non_exhaustive()
    }
}

impl WriteFile for Observed<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)?;
        self.written = self.written.saturating_add(bytes.len() as u64);
        self.unsynced = self.unsynced.saturating_add(bytes.len() as u64);
        // Not only before a sync: commits need the processors, too.
        self.precedence.give_way(&mut self.patience, self.clock);
        if self.unsynced >= SYNCED_BYTES {
            (self.unsynced, self.patience) = (0, Patience::default());
            self.file.sync()?;
        }
        match (self.observer)(self.written) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::new(ErrorKind::Cancelled, "writing a run")),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
}
