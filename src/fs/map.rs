//! Mapping a file: the only unsafe code of the crate.
//!
//! A mapped file is read as plain memory. That is sound only while the bytes do not change and the file does not shrink: a page beyond
//! the end kills the process (SIGBUS). Runs are written once under a temporary name and never written again, and the directory
//! belongs to its owner alone (mode 0700, locked), so nobody who keeps our rules does either. Where others can write to the medium,
//! read through [`ReadFile::read_exact_at`](super::ReadFile::read_exact_at) instead.
#![expect(unsafe_code, reason = "memory mapping cannot be had without; nothing else in the crate is unsafe")]

use std::fs::File;
use std::path::Path;

use memmap2::{Advice, MmapOptions};

use super::contract::Access;
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// Maps the first `length` bytes of `file`, which must be all it has.
pub(super) fn map(file: &File, path: &Path, length: u64, access: Access) -> Result<Bytes> {
    let found = file.metadata().map_err(|error| Error::io(path, "ask for the file's length", error))?.len();
    if found != length {
        return Err(Error::corrupt(path, found.min(length), format!("{length} bytes"), format!("{found} bytes")));
    }
    if length == 0 {
        return Ok(Bytes::default());
    }
    let size =
        usize::try_from(length).map_err(|error| Error::invalid("the file is too large to map").with_source(error))?;
    // SAFETY: the mapping is read-only and private to this process, and covers `size` bytes that the file had a moment ago.
    // That the file is not written to or cut short from here on is kept by the owner of the directory: alluvium never writes to a
    // file after it was published, never truncates, and only ever removes whole files, which leaves mappings intact.
    let mapped = unsafe { MmapOptions::new().len(size).map(file) };
    let mapped = mapped.map_err(|error| Error::io(path, "map the file", error))?;
    if let Some(advice) = advice(access) {
        mapped.advise(advice).map_err(|error| Error::io(path, "advise on the mapping", error))?;
    }
    Ok(Bytes::from_owner(mapped))
}

fn advice(access: Access) -> Option<Advice> {
    match access {
        Access::Normal => None,
        Access::Random => Some(Advice::Random),
        Access::Sequential => Some(Advice::Sequential),
        Access::WillNeed => Some(Advice::WillNeed),
    }
}
