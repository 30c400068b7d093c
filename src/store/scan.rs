//! [`Scan`]: the public face of a merge of cursors.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, FAMILY_BYTES};
use crate::error::{Error, Result};

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
    open: OpenScan,
}

impl Scan {
    pub(crate) fn new(cursor: Box<dyn Cursor>, open: OpenScan) -> Self {
        Self { cursor, ended: false, open }
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
        let step = self.step().inspect_err(|error| self.open.0.hear(error)).transpose();
        self.ended = step.is_none();
        step
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// What those who read a store have going on.
#[derive(Default)]
pub(crate) struct Readers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Scans that are alive.
    scans: AtomicUsize,
    /// How often a read has met damage.
    damage: AtomicU64,
    /// Who wants to know, so that it is mended before the next read.
    told: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// A scan that is alive; counted until dropped.
pub(crate) struct OpenScan(Arc<Shared>);

impl Readers {
    pub(crate) fn open(&self) -> OpenScan {
        self.0.scans.fetch_add(1, Ordering::Relaxed);
        OpenScan(Arc::clone(&self.0))
    }

    pub(crate) fn scans(&self) -> usize {
        self.0.scans.load(Ordering::Relaxed)
    }

    /// How often a read has met damage.
    pub(crate) fn damage(&self) -> u64 {
        self.0.damage.load(Ordering::Acquire)
    }

    /// Has `told` called whenever a read meets damage. Only the first one is.
    pub(crate) fn on_damage(&self, told: impl Fn() + Send + Sync + 'static) {
        self.0.told.get_or_init(|| Box::new(told));
    }

    /// Takes note of an error of a read.
    pub(super) fn hear(&self, error: &Error) {
        self.0.hear(error);
    }
}

impl Shared {
    fn hear(&self, error: &Error) {
        if error.is_corrupt() || error.is_unreadable() {
            self.damage.fetch_add(1, Ordering::Release);
            if let Some(tell) = self.told.get() {
                tell();
            }
        }
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("scans", &self.scans()).field("damage", &self.damage()).finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenScan")
    }
}

impl Drop for OpenScan {
    fn drop(&mut self) {
        self.0.scans.fetch_sub(1, Ordering::Relaxed);
    }
}
