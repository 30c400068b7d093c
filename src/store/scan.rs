//! [`Scan`]: the public face of a merge of cursors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, FAMILY_BYTES};
use crate::error::Result;

/// One entry of a scan: the user's key and its value, both kept alive by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
}

/// An iterator over entries in ascending order of keys; `Send` and independent of the handle that made it.
///
/// After an error it stays at that error: it never skips what it could not read. Every scan that is alive counts in
/// the provider's `open_scans`, and keeps the files it reads from leaving the disk.
pub struct Scan {
    cursor: Box<dyn Cursor>,
    ended: bool,
    _open: OpenScan,
}

impl Scan {
    pub(crate) fn new(cursor: Box<dyn Cursor>, open: OpenScan) -> Self {
        Self { cursor, ended: false, _open: open }
    }

    fn step(&mut self) -> Result<Option<Entry>> {
        while self.cursor.advance()? {
            if let Change::Put(value) = self.cursor.change_bytes() {
                let full = self.cursor.key_bytes();
                let key = full.slice(FAMILY_BYTES..full.len()).unwrap_or_default();
                return Ok(Some(Entry { key, value }));
            }
        }
        Ok(None)
    }
}

impl Iterator for Scan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step().transpose();
        self.ended = step.is_none();
        step
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// Counts the scans that are alive.
#[derive(Debug, Default)]
pub(crate) struct OpenScans(Arc<AtomicUsize>);

/// One count, given back on drop.
#[derive(Debug)]
pub(crate) struct OpenScan(Arc<AtomicUsize>);

impl OpenScans {
    pub(crate) fn open(&self) -> OpenScan {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenScan(Arc::clone(&self.0))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for OpenScan {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
