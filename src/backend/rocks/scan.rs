//! [`Scan`]: a walk over a generation that keeps the database open for as long as it lives.

#![expect(clippy::mem_forget, reason = "inside `self_cell`, where it hands memory over")]

use std::sync::Arc;

use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};
use self_cell::self_cell;

use super::families::{Db, PREFIX_BYTES, state_range};
use crate::backend::contract::GenerationId;
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::Result;

type RawScan<'a> = DBRawIteratorWithThreadMode<'a, DB>;

self_cell! {
    struct ScanCell {
        owner: Arc<Db>,
        #[covariant]
        dependent: RawScan,
    }
}

/// A cursor over the entries that a generation had when the scan was made.
pub(super) struct Scan {
    cell: ScanCell,
    started: bool,
}

impl Scan {
    pub(super) fn new(db: Arc<Db>, generation: GenerationId, range: &KeyRange) -> Self {
        let (start, end) = state_range(generation, range);
        let mut read = ReadOptions::default();
        read.set_iterate_lower_bound(start);
        read.set_iterate_upper_bound(end);
        let cell = ScanCell::new(db, |db| db.raw().raw_iterator_cf_opt(db.handles().state, read));
        Self { cell, started: false }
    }
}

impl Cursor for Scan {
    fn advance(&mut self) -> Result<bool> {
        let started = std::mem::replace(&mut self.started, true);
        self.cell.with_dependent_mut(|db, raw| {
            if started {
                raw.next(); // does nothing once it is at its end or at an error
            } else {
                raw.seek_to_first(); // to the lower bound
            }
            match raw.value() {
                Some(stored) => db.decode_value(stored).map(|_| true),
                // The error, if it is one, stays with the iterator.
                None => raw.status().map(|()| false).map_err(|error| db.failed("walk over the index", error)),
            }
        })
    }

    fn key(&self) -> &[u8] {
        self.cell.borrow_dependent().key().and_then(|key| key.get(PREFIX_BYTES..)).unwrap_or_default()
    }

    fn change(&self) -> Change<&[u8]> {
        let stored = self.cell.borrow_dependent().value().unwrap_or_default();
        // `advance` has looked at it.
        self.cell.borrow_owner().decode_value(stored).unwrap_or(Change::Tombstone)
    }
}
