//! Applying deltas to a generation, and getting rid of one.

use std::sync::{Arc, PoisonError};

use rocksdb::{WriteBatch, WriteOptions};

use super::engine::RocksEngine;
use super::families::{Db, PREFIX_BYTES, encode_value, prefix, state_range};
use super::options::reclaiming;
use super::registry::{Known, forget_dropped, forget_generation, put_generation, put_ranges};
use crate::backend::contract::{Coverage, GenerationId, VersionRecord};
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::version::Mark;

/// What dropped generations may leave on disk in files that they share with others: less is not worth rewriting a file.
const LEFTOVER_BYTES: u64 = 16 << 20;

impl RocksEngine {
    pub(super) fn apply_delta(
        &self,
        generation: GenerationId,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        let known = self.registry().generation(generation)?.clone();
        if let Some(torn) = known.record.torn.filter(|torn| *torn != applied) {
            let context = format!("the generation holds a part of {}, and cannot take {}", torn.at, applied.at);
            return Err(Error::new(ErrorKind::Poisoned, context));
        }
        let mut batch = Batch::new(&self.db, generation, known.record.coverage);
        let masked = batch.put_ranges(&known, ranges);
        while changes.advance()? {
            batch.add(changes.key(), changes.change());
            if batch.is_full() {
                self.write_part(&mut batch, &known, masked.as_ref(), applied)?;
            }
        }
        self.write_last(batch, known, masked, applied, version)
    }

    /// Writes a part of a large delta. The first part says that the generation is torn from now on.
    fn write_part(
        &self,
        batch: &mut Batch<'_>,
        known: &Known,
        masked: Option<&Arc<RangeSet>>,
        applied: Mark,
    ) -> Result<()> {
        let mut record = known.record.clone();
        record.torn = Some(applied);
        put_generation(&self.db, &mut batch.pending, &record);
        self.db.write(batch.take())?;
        if let Some(mine) = self.registry().generations.get_mut(&record.id) {
            mine.record = record;
            // The first part has their rows in it: whoever drops the torn generation has to know them.
            mine.ranges = masked.map_or_else(|| Arc::clone(&mine.ranges), Arc::clone);
        }
        Ok(())
    }

    fn write_last(
        &self,
        mut batch: Batch<'_>,
        mut known: Known,
        masked: Option<Arc<RangeSet>>,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        known.record.applied = applied;
        known.record.torn = None;
        put_generation(&self.db, &mut batch.pending, &known.record);
        let store = known.record.id.store;
        if let Some(version) = version {
            self.db.put_version(&mut batch.pending, store, version);
        }
        self.db.write(batch.take())?;
        known.ranges = masked.unwrap_or(known.ranges);
        self.registry().generations.insert(known.record.id, known);
        Ok(())
    }

    /// Takes generations off the books; their disk is freed by [`RocksEngine::free_dropped`].
    pub(super) fn forget_all(&self, batch: &mut WriteBatch, gone: &[Known]) {
        for known in gone {
            forget_generation(&self.db, batch, known);
        }
    }

    /// Frees the disk of dropped generations. Whole files go at once; the rest is covered by a range delete, and rewritten when
    /// enough has come together.
    pub(super) fn free_dropped(&self) -> Result<()> {
        // One at a time: two would compact the same ranges.
        let _turn = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped: Vec<GenerationId> = self.registry().dropped.iter().copied().collect(); // a handful
        if dropped.is_empty() {
            return Ok(());
        }
        // The files go at once and for ever, so the records have to be durably gone before: or a kill would bring a record
        // back without its entries, and the generation would be read as if it were whole.
        self.db.flush()?;
        let mut leftovers = Vec::with_capacity(dropped.len());
        for id in dropped {
            leftovers.push((id, self.delete_entries(id)?));
        }
        if leftovers.iter().map(|(_, bytes)| bytes).sum::<u64>() >= LEFTOVER_BYTES {
            for (id, bytes) in &mut leftovers {
                self.compact(*id);
                *bytes = 0;
            }
        }
        // What is left of the others counts again the next time.
        let free = leftovers.iter().filter(|(_, bytes)| *bytes == 0).map(|(id, _)| *id);
        let mut batch = WriteBatch::default();
        let free: Vec<GenerationId> = free.inspect(|id| forget_dropped(&self.db, &mut batch, *id)).collect();
        self.db.write(batch)?;
        self.registry().dropped.retain(|id| !free.contains(id));
        Ok(())
    }

    /// Deletes a dropped generation's entries and says how many bytes of files they still lie in.
    fn delete_entries(&self, id: GenerationId) -> Result<u64> {
        let (raw, state) = (self.db.raw(), self.db.handles().state);
        let (start, end) = state_range(id, &KeyRange::ALL);
        raw.delete_file_in_range_cf(state, &start, &end).map_err(|error| self.db.failed("delete files", error))?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        // After the files: a file that went could have held the range delete of an older attempt.
        let deleted = raw.delete_range_cf_opt(state, &start, &end, &write);
        deleted.map_err(|error| self.db.failed("delete a generation", error))?;
        let left = raw.get_approximate_sizes_cf(state, &[rocksdb::Range::new(&start, &end)]);
        Ok(left.into_iter().sum())
    }

    fn compact(&self, id: GenerationId) {
        let (start, end) = state_range(id, &KeyRange::ALL);
        self.db.raw().compact_range_cf_opt(self.db.handles().state, Some(start), Some(end), &reclaiming());
    }
}

/// The changes of one delta on their way into the database.
struct Batch<'a> {
    db: &'a Db,
    generation: GenerationId,
    coverage: Coverage,
    pending: WriteBatch,
    /// The generation's prefix, and behind it the full key of the entry at hand.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Batch<'a> {
    fn new(db: &'a Db, generation: GenerationId, coverage: Coverage) -> Self {
        let pending = WriteBatch::with_capacity_bytes(64 << 10);
        Self { db, generation, coverage, pending, key: prefix(generation).to_vec(), value: Vec::new() }
    }

    /// Deletes ranges from the generation, before anything is added. Gives the set that then masks what lies below.
    fn put_ranges(&mut self, known: &Known, ranges: &RangeSet) -> Option<Arc<RangeSet>> {
        for range in ranges.iter() {
            let (start, end) = state_range(self.generation, range);
            self.pending.delete_range_cf(self.db.handles().state, start, end);
        }
        if ranges.is_empty() || self.coverage.is_complete() {
            return None;
        }
        let mut masked = RangeSet::clone(&known.ranges);
        masked.extend(ranges);
        put_ranges(self.db, &mut self.pending, self.generation, &known.ranges, &masked);
        Some(Arc::new(masked))
    }

    fn add(&mut self, full_key: &[u8], change: Change<&[u8]>) {
        let state = self.db.handles().state;
        self.key.truncate(PREFIX_BYTES);
        self.key.extend_from_slice(full_key);
        if change == Change::Tombstone && self.coverage.is_complete() {
            self.pending.delete_cf(state, &self.key);
        } else {
            encode_value(change, &mut self.value);
            self.pending.put_cf(state, &self.key, &self.value);
        }
    }

    fn is_full(&self) -> bool {
        self.pending.size_in_bytes() >= self.db.tuning.batch_bytes()
    }

    fn take(&mut self) -> WriteBatch {
        std::mem::take(&mut self.pending)
    }
}
