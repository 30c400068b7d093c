//! Room that is kept for a full disk, so that the log can still be closed and cleaned.

use std::path::Path;

use super::name::RESERVE;
use super::segment::Shelf;
use crate::error::{ErrorKind, Result};
use crate::fs::Disk;

/// The reserve for a full disk: enough for a seal with its index.
const RESERVE_BYTES: u64 = 256 << 10;

/// Frees the room that is kept for a full disk.
pub(super) fn free_reserve(shelf: &Shelf) {
    if let Err(error) = shelf.disk.remove(&shelf.dir.join(RESERVE)) {
        tracing::warn!(%error, "the log's reserve could not be freed");
    }
}

/// Tries something, and on a full disk once more with the reserve's room.
pub(super) fn or_with_reserve<T>(shelf: &Shelf, attempt: impl Fn() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(error) if matches!(error.kind(), ErrorKind::DiskFull { .. }) => {
            free_reserve(shelf);
            attempt()
        }
        outcome => outcome,
    }
}

/// Whether the file holds the room of a reserve, or is none because the disk was full.
pub(super) fn is_reserve(disk: &dyn Disk, path: &Path) -> Result<bool> {
    Ok(disk.stat(path)?.is_some_and(|stat| stat.length_bytes >= RESERVE_BYTES))
}

/// Whether there is a reserve now.
pub(super) fn make_reserve(disk: &dyn Disk, path: &Path) -> bool {
    let make = || -> Result<bool> {
        if disk.stat(path)?.is_some() {
            if is_reserve(disk, path)? {
                return Ok(true);
            }
            disk.remove(path)?; // what a full disk has left of it
        }
        disk.create_new(path)?.preallocate(RESERVE_BYTES)?;
        // A file system that reserves nothing leaves it empty: then there is none.
        is_reserve(disk, path)
    };
    make().unwrap_or_else(|error| {
        tracing::debug!(%error, "the log has no reserve for a full disk");
        false
    })
}
