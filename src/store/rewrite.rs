//! Writing many runs as one: snapshots and collapsed deltas.

use std::sync::Arc;

use super::directory::{OpenChain, StoreDirectory, name_of};
use super::load::merged_with_ranges;
use crate::catalog::RunName;
use crate::entry::Cursor;
use crate::error::Result;
use crate::fs::PublishError;
use crate::ranges::RangeSet;
use crate::run::{Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{Mark, RunId, RunKind, Version};

/// Writes the whole state of the chain as one snapshot. Streams: the memory is that of a few pages and one stripe.
///
/// Gives `None` where there is nothing to do: version 0, or a chain that already is one snapshot.
///
/// # Errors
/// After a failure nothing is visible, or the whole file is; both are right.
pub(super) fn write_snapshot(directory: &StoreDirectory, chain: &OpenChain) -> Result<Option<RunName>> {
    let runs = chain.newest_first();
    let is_snapshot = matches!(runs.as_slice(), [only] if only.header().kind == RunKind::Snapshot);
    let Some(newest) = runs.first().filter(|_| chain.mark != Mark::ROOT && !is_snapshot) else { return Ok(None) };
    let header = snapshot_header(newest.header(), directory.new_run_id());
    let (content, _) = merged_with_ranges(&runs);
    write(directory, &header, &mut content.live(), &RangeSet::default(), newest.metadata()).map(Some)
}

/// The header of a snapshot of the version that a run leads to.
pub(super) fn snapshot_header(newest: &RunHeader, id: RunId) -> RunHeader {
    RunHeader { kind: RunKind::Snapshot, from: Version::EMPTY, id, parent: RunId::NONE, ..newest.clone() }
}

/// Writes the single deltas above the base as one collapsed delta; `None` where there are fewer than two.
///
/// # Errors
/// As [`write_snapshot`].
pub(super) fn write_collapsed(directory: &StoreDirectory, chain: &OpenChain) -> Result<Option<RunName>> {
    let newest_first: Vec<Arc<Run>> = chain.singles.iter().rev().cloned().collect(); // at most the tail
    collapse(directory, &newest_first)
}

/// Writes adjacent deltas, newest first, as one; `None` where there are fewer than two.
///
/// # Errors
/// As [`write_snapshot`].
pub(super) fn collapse(directory: &StoreDirectory, newest_first: &[Arc<Run>]) -> Result<Option<RunName>> {
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
    write(directory, &header, &mut content, &ranges, newest.metadata()).map(Some)
}

fn write(
    directory: &StoreDirectory,
    header: &RunHeader,
    content: &mut dyn Cursor,
    ranges: &RangeSet,
    metadata: &[u8],
) -> Result<RunName> {
    let name = name_of(header)?;
    let mut file = directory.create_run(&name)?;
    let mut run = RunWriter::new(&mut *file, &directory.display_path(name), header, WriterOptions::aligned())?;
    while content.advance()? {
        run.add(content.key(), content.change())?;
    }
    run.range_tombstones(ranges)?;
    run.finish(metadata)?;
    match file.publish() {
        Ok(()) => Ok(name),
        // Somebody else made the same content under the same name.
        Err(PublishError::NotPublished(error)) if error.is_already_exists() => Ok(name),
        Err(PublishError::NotPublished(error) | PublishError::Unknown(error)) => {
            Err(error.context(format!("the run {name} was not made")))
        }
    }
}
