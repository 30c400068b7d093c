//! Giving up the oldest segments.
//!
//! First the horizon is made durable: a file whose name says below which segment nothing counts any more. Then files go, in any order and as
//! far as they can. A crash in between leaves files below the horizon, which every opening ignores and removes.

use std::path::PathBuf;
use std::sync::Arc;

use super::contract::Cleaned;
use super::name::Side;
use super::planted::Planted;
use super::reserve::or_with_reserve;
use super::segment::{Segment, Shelf};
use crate::error::Result;

/// Gives up the oldest segments as long as `is_over` says so, but never the newest one; and tries again what could not be deleted before.
///
/// # Errors
/// Where the horizon could not be made durable: nothing was deleted, the segments are still there.
pub(super) fn clean(shelf: &Shelf, recycles: usize, is_over: impl Fn(&Segment) -> bool) -> Result<Cleaned> {
    let segments = shelf.all();
    let candidates = segments.split_last().map(|(_, older)| older).unwrap_or_default();
    let over = candidates.iter().take_while(|segment| is_over(segment)).count();
    let mut paths = shelf.take_condemned();
    let horizon = segments.get(over).map(|segment| segment.number()).filter(|_| over > 0);
    drop(segments);
    let mut cleaned = Cleaned { segments: over, ..Cleaned::default() };
    if let Some(horizon) = horizon
        && shelf.planted != Planted::CleanWithoutHorizon
    {
        if let Err(error) = announce(shelf, horizon) {
            for path in paths {
                shelf.condemn(path);
            }
            return Err(error.context("the log could not announce which segments it gives up"));
        }
        paths.extend(old_horizons(shelf, horizon));
    }
    let mut room = recycles.saturating_sub(shelf.spares());
    let removed = horizon.map(|horizon| shelf.remove_below(horizon)).unwrap_or_default();
    // Newest first, so that without a horizon a crash would show: the oldest would stay in front of a hole.
    for segment in removed.into_iter().rev() {
        let path = segment.path.to_path_buf();
        let is_free = Arc::strong_count(&segment) <= 1; // nobody reads it
        let spare = shelf.dir.join(Side::Spare(segment.number()).to_string());
        if room > 0 && is_free && shelf.disk.rename_new(&path, &spare).is_ok() {
            room -= 1;
            shelf.add_spare(spare);
            cleaned.deleted += 1;
        } else {
            paths.push(path);
        }
    }
    for path in paths {
        match shelf.disk.remove(&path) {
            Ok(()) => cleaned.deleted += 1,
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(%error, "a segment of the log could not be deleted; the next clean tries again");
                shelf.condemn(path.clone());
                cleaned.failed.push((path, error));
            }
        }
    }
    Ok(cleaned)
}

/// Makes the new horizon durable. On a full disk the reserve is given up for it.
fn announce(shelf: &Shelf, horizon: u64) -> Result<()> {
    let path = shelf.dir.join(Side::Horizon(horizon).to_string());
    match or_with_reserve(shelf, || shelf.disk.create_new(&path)) {
        Ok(file) => drop(file),
        // An earlier clean got as far as this.
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error),
    }
    shelf.disk.sync_dir(&shelf.dir) // the segments below are given up
}

fn old_horizons(shelf: &Shelf, horizon: u64) -> Vec<PathBuf> {
    let entries = shelf.disk.list(&shelf.dir).unwrap_or_default();
    let old =
        entries.iter().filter(|entry| matches!(Side::parse(&entry.name), Some(Side::Horizon(at)) if at < horizon));
    old.map(|entry| shelf.dir.join(&entry.name)).collect()
}
