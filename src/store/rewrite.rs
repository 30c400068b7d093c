//! Writing many runs as one: snapshots and collapsed deltas.

use std::sync::Arc;

use super::directory::{OpenChain, StoreDirectory, name_of};
use super::load::{merged, merged_with_ranges};
use crate::catalog::RunName;
use crate::entry::Cursor;
use crate::error::{Error, Result};
use crate::fs::PublishError;
use crate::ranges::RangeSet;
use crate::run::{Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{Mark, RunKind, Version};

/// Writes the whole state of the chain as one snapshot. Streams: the memory is that of a few pages and one stripe.
///
/// Gives `None` where there is nothing to do: version 0, or a chain that already is one snapshot.
///
/// # Errors
/// After a failure nothing is visible, or the whole file is; both are right.
pub(super) fn write_snapshot(directory: &StoreDirectory, chain: &OpenChain) -> Result<Option<RunName>> {
    let is_snapshot = |run: &Arc<Run>| run.header().kind == RunKind::Snapshot;
    if chain.mark == Mark::ROOT
        || (chain.singles.is_empty() && matches!(chain.base.as_slice(), [one] if is_snapshot(one)))
    {
        return Ok(None);
    }
    let runs = chain.newest_first();
    let mut content = merged(runs.iter()).live();
    write(directory, chain, Mark::ROOT, RunKind::Snapshot, &mut content, &RangeSet::default())
}

/// Writes the single deltas above the base as one collapsed delta; `None` where there are fewer than two.
///
/// # Errors
/// As [`write_snapshot`].
pub(super) fn write_collapsed(directory: &StoreDirectory, chain: &OpenChain) -> Result<Option<RunName>> {
    if chain.singles.len() < 2 {
        return Ok(None);
    }
    let newest_first: Vec<Arc<Run>> = chain.singles.iter().rev().cloned().collect(); // at most the tail
    let (mut content, ranges) = merged_with_ranges(&newest_first);
    write(directory, chain, chain.base_mark(), RunKind::Delta, &mut content, &ranges)
}

fn write(
    directory: &StoreDirectory,
    chain: &OpenChain,
    from: Mark,
    kind: RunKind,
    content: &mut dyn Cursor,
    ranges: &RangeSet,
) -> Result<Option<RunName>> {
    let Some(newest) = chain.singles.last().or(chain.base.last()) else { return Ok(None) };
    let header = newest.header();
    let new_header = RunHeader {
        kind,
        from: from.at.version,
        id: directory.new_run_id(),
        parent: if kind == RunKind::Snapshot { Mark::ROOT.tip } else { from.tip },
        ..header.clone()
    };
    let name = name_of(&new_header)?;
    let mut file = directory.create_run(&name)?;
    let mut run = RunWriter::new(&mut *file, &directory.display_path(name), &new_header, WriterOptions::aligned())?;
    while content.advance()? {
        run.add(content.key(), content.change())?;
    }
    run.range_tombstones(ranges)?;
    run.finish(newest.metadata())?;
    match file.publish() {
        Ok(()) => Ok(Some(name)),
        // Somebody else made the same content under the same name.
        Err(PublishError::NotPublished(error)) if error.is_already_exists() => Ok(Some(name)),
        Err(PublishError::NotPublished(error) | PublishError::Unknown(error)) => {
            Err(told(error, kind, chain.mark.at.version))
        }
    }
}

fn told(error: Error, kind: RunKind, version: Version) -> Error {
    let what = match kind {
        RunKind::Snapshot => "snapshot",
        RunKind::Delta => "collapsed delta",
    };
    error.context(format!("the {what} of version {version} was not made"))
}
