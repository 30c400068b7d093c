//! [`Overlay`]: the hash table over the arena.

use std::sync::Arc;

use hashbrown::HashTable;

use super::arena::{Arena, Place};
use super::rows::{Row, RowCursor, SortedRows, merge};
use crate::budget::Lease;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;

/// How much the lease grows at a time, so that it is not asked for every entry.
const LEASE_STEP_BYTES: usize = 256 << 10;
/// Dead bytes below this are not worth a rebuild.
const REBUILD_FROM_BYTES: usize = 1 << 20;

/// The uncommitted writes of one transaction: see the module page.
#[derive(Debug)]
pub(crate) struct Overlay {
    arena: Arena,
    /// All entries in the order of their writing, overwritten ones included.
    entries: Vec<Entry>,
    /// Of every key the place of its newest entry in `entries`.
    newest: HashTable<u32>,
    /// Deleted ranges. A point entry in here is always newer than the range that covers it.
    ranges: RangeSet,
    /// What scans have sorted so far, oldest first: each list at least twice as long as the next.
    sorted: Vec<SortedRows>,
    /// How many of `entries` the sorted lists cover.
    sorted_entries: usize,
    dead_bytes: usize,
    lease: Lease,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    place: Place,
    key_length: u32,
    /// [`TOMBSTONE`] for a removal.
    value_length: u32,
}

const TOMBSTONE: u32 = u32::MAX;

impl Entry {
    fn value_bytes(self) -> usize {
        if self.value_length == TOMBSTONE { 0 } else { self.value_length as usize }
    }

    fn bytes(self) -> usize {
        self.key_length as usize + self.value_bytes()
    }
}

impl Overlay {
    /// An empty overlay, whose memory `lease` answers for.
    pub(crate) fn new(lease: Lease) -> Self {
        Self {
            arena: Arena::default(),
            entries: Vec::new(),
            newest: HashTable::new(),
            ranges: RangeSet::default(),
            sorted: Vec::new(),
            sorted_entries: 0,
            dead_bytes: 0,
            lease,
        }
    }

    /// What was written for a key; `None` where nothing was and the search goes on below.
    pub(crate) fn get(&self, probe: &Probe<'_>) -> Option<Change<Bytes>> {
        match self.find(probe) {
            Some(entry) => Some(self.change_bytes(entry)),
            None => self.ranges.contains(probe.full_key).then_some(Change::Tombstone),
        }
    }

    /// Writes a value (`Put`) or a removal.
    ///
    /// # Errors
    /// `MemoryLimit` where the budget has no room left; nothing was written then.
    pub(crate) fn write(&mut self, probe: &Probe<'_>, change: Change<&[u8]>) -> Result<()> {
        let value = change.into_value().unwrap_or_default();
        self.reserve(probe.full_key.len() + value.len())?;
        let full =
            || Error::new(ErrorKind::LimitExceeded { limit: u64::from(u32::MAX), found: u64::MAX }, "one transaction");
        let number = u32::try_from(self.entries.len()).ok().ok_or_else(full)?;
        let entry = Entry {
            hash: probe.hash,
            place: self.arena.push(probe.full_key, value).ok_or_else(full)?,
            key_length: u32::try_from(probe.full_key.len()).ok().ok_or_else(full)?,
            value_length: match change {
                Change::Put(_) => u32::try_from(value.len()).ok().ok_or_else(full)?,
                Change::Tombstone => TOMBSTONE,
            },
        };
        self.entries.push(entry);
        let (entries, arena) = (&self.entries, &self.arena);
        let is_same = |old: &u32| entries.get(*old as usize).is_some_and(|old| is_key(arena, *old, probe));
        if let Some(place) = self.newest.find_mut(probe.hash, is_same) {
            let old = std::mem::replace(place, number);
            self.dead_bytes += entries.get(old as usize).map_or(0, |old| old.bytes() + size_of::<Entry>());
        } else {
            let hash_of = |number: &u32| entries.get(*number as usize).map_or(0, |entry| entry.hash);
            self.newest.insert_unique(probe.hash, number, hash_of);
        }
        if self.dead_bytes > REBUILD_FROM_BYTES.max(self.arena.bytes() / 2) {
            self.rebuild()?;
        }
        Ok(())
    }

    /// Deletes all keys of a range, in here and below.
    pub(crate) fn delete_range(&mut self, range: KeyRange) {
        let (entries, arena, dead_bytes) = (&self.entries, &self.arena, &mut self.dead_bytes);
        self.newest.retain(|number| {
            let Some(entry) = entries.get(*number as usize) else { return false };
            let gone = range.contains(arena.get(entry.place, entry.key_length as usize));
            *dead_bytes += if gone { entry.bytes() + size_of::<Entry>() } else { 0 };
            !gone
        });
        self.ranges.insert(range);
        // The lists still hold the deleted rows; the next scan sorts anew.
        self.sorted.clear();
        self.sorted_entries = 0;
    }

    /// The ranges deleted so far.
    pub(crate) fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// The number of keys with a point entry.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.newest.len()
    }

    /// Cursors over what is written now, newest first; later writes do not show in them.
    pub(crate) fn cursors(&mut self, range: &KeyRange) -> Vec<Box<dyn Cursor>> {
        self.sort_new_entries();
        let lists = self.sorted.iter().rev();
        lists.map(|rows| Box::new(RowCursor::new(Arc::clone(rows), range.clone())) as Box<dyn Cursor>).collect()
    }

    /// Calls `visit` with the newest entry of every key, in ascending order.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[u8], Change<&[u8]>) -> Result<()>) -> Result<()> {
        // Eight bytes of the key beside its number decide most comparisons without a look into the arena.
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(self.newest.len());
        order.extend(self.newest.iter().map(|number| (key_start(self.key(*number)), *number)));
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| self.key(a.1).cmp(self.key(b.1))));
        for (_, number) in order {
            if let Some(entry) = self.entries.get(number as usize) {
                let (key, change) = self.parts(*entry);
                visit(key, change)?;
            }
        }
        Ok(())
    }

    fn find(&self, probe: &Probe<'_>) -> Option<Entry> {
        let is_same =
            |number: &u32| self.entries.get(*number as usize).is_some_and(|entry| is_key(&self.arena, *entry, probe));
        self.newest.find(probe.hash, is_same).and_then(|number| self.entries.get(*number as usize)).copied()
    }

    fn key(&self, number: u32) -> &[u8] {
        let entry = self.entries.get(number as usize);
        entry.map(|entry| self.arena.get(entry.place, entry.key_length as usize)).unwrap_or_default()
    }

    fn parts(&self, entry: Entry) -> (&[u8], Change<&[u8]>) {
        let (key, value) =
            self.arena.get(entry.place, entry.bytes()).split_at_checked(entry.key_length as usize).unwrap_or_default();
        (key, if entry.value_length == TOMBSTONE { Change::Tombstone } else { Change::Put(value) })
    }

    fn change_bytes(&self, entry: Entry) -> Change<Bytes> {
        if entry.value_length == TOMBSTONE {
            return Change::Tombstone;
        }
        let both = self.arena.view(entry.place, entry.bytes());
        Change::Put(both.slice(entry.key_length as usize..both.len()).unwrap_or_default())
    }

    /// Sorts what was written since the last scan into a list of its own, and keeps the lists few by merging those of
    /// like size (Bentley and Saxe 1980), so that scanning between writes costs O(log n) a write.
    fn sort_new_entries(&mut self) {
        if self.sorted_entries == self.entries.len() {
            return;
        }
        self.arena.freeze();
        let first_new = self.sorted_entries;
        let mut rows: Vec<Row> = if self.newest.len() < self.entries.len() - first_new {
            self.newest.iter().filter(|number| **number as usize >= first_new).filter_map(|n| self.row(*n)).collect()
        } else {
            let new = (first_new..self.entries.len()).filter_map(|number| u32::try_from(number).ok());
            new.filter(|number| self.is_newest(*number)).filter_map(|number| self.row(number)).collect()
        };
        rows.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        while let Some(older) = self.sorted.pop_if(|older| older.len() <= rows.len().saturating_mul(2)) {
            rows = merge(&older, &rows);
        }
        self.sorted.push(Arc::new(rows));
        self.sorted_entries = self.entries.len();
    }

    fn is_newest(&self, number: u32) -> bool {
        let hash = self.entries.get(number as usize).map_or(0, |entry| entry.hash);
        self.newest.find(hash, |newest| *newest == number).is_some()
    }

    fn row(&self, number: u32) -> Option<Row> {
        let entry = self.entries.get(number as usize)?;
        Some(Row {
            bytes: self.arena.view(entry.place, entry.bytes()),
            key_length: entry.key_length as usize,
            is_tombstone: entry.value_length == TOMBSTONE,
        })
    }

    /// Makes sure that the lease covers `more` bytes on top of what is held.
    fn reserve(&mut self, more: usize) -> Result<()> {
        let table_bytes = self.newest.capacity() * size_of::<u32>() * 2;
        let rows_bytes = self.sorted.iter().map(|rows| rows.len() * size_of::<Row>()).sum::<usize>();
        let held = self.arena.bytes() + self.entries.capacity() * size_of::<Entry>() + table_bytes + rows_bytes;
        let wanted = (held + more) as u64;
        if wanted > self.lease.bytes() {
            self.lease.resize(wanted + LEASE_STEP_BYTES as u64)?;
        }
        Ok(())
    }

    /// Copies what is live into a fresh arena. Scans that are under way keep the old chunks.
    fn rebuild(&mut self) -> Result<()> {
        let mut arena = Arena::default();
        let mut entries = Vec::with_capacity(self.newest.len());
        let mut newest = HashTable::with_capacity(self.newest.len());
        for number in &self.newest {
            let Some(entry) = self.entries.get(*number as usize).copied() else { continue };
            let (key, change) = self.parts(entry);
            let place = arena.push(key, change.into_value().unwrap_or_default());
            let (Some(place), Ok(number)) = (place, u32::try_from(entries.len())) else { return Ok(()) };
            entries.push(Entry { place, ..entry });
            newest.insert_unique(entry.hash, number, |n: &u32| entries.get(*n as usize).map_or(0, |e: &Entry| e.hash));
        }
        (self.arena, self.entries, self.newest) = (arena, entries, newest);
        self.sorted.clear();
        (self.sorted_entries, self.dead_bytes) = (0, 0);
        self.lease.resize(0)?;
        self.reserve(0)
    }
}

fn is_key(arena: &Arena, entry: Entry, probe: &Probe<'_>) -> bool {
    entry.hash == probe.hash && arena.get(entry.place, entry.key_length as usize) == probe.full_key
}

fn key_start(key: &[u8]) -> u64 {
    let mut start = [0; 8];
    start.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::budget::Budget;

    fn overlay() -> Overlay {
        Overlay::new(Budget::new(1 << 30).lease(0, "overlay").unwrap())
    }

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn contents(overlay: &Overlay) -> Model {
        let mut all = Model::new();
        let mut last: Option<Vec<u8>> = None;
        overlay
            .for_each(|key, change| {
                assert!(last.as_deref().is_none_or(|last| last < key), "keys ascend");
                last = Some(key.to_vec());
                all.insert(key.to_vec(), change.into_value().map(<[u8]>::to_vec));
                Ok(())
            })
            .unwrap();
        all
    }

    /// Reads cursors (newest first) as a merge would.
    fn scanned(cursors: Vec<Box<dyn Cursor>>) -> Model {
        let mut all = Model::new();
        for mut cursor in cursors.into_iter().rev() {
            while cursor.advance().unwrap() {
                all.insert(cursor.key().to_vec(), cursor.change_bytes().into_value().map(|v| v.to_vec()));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn an_overlay_agrees_with_a_map(ops in prop::collection::vec((0u8..5, 0u8..12, 0usize..40), 1..120)) {
            let mut overlay = overlay();
            let mut model = Model::new();
            let mut ranges = RangeSet::default();
            let mut open: Vec<(Vec<Box<dyn Cursor>>, Model)> = Vec::new();
            for (op, key, size) in ops {
                let full = [0, 0, key];
                let probe = Probe::new(&full);
                match op {
                    0 | 1 => {
                        let value = vec![key; size];
                        overlay.write(&probe, Change::Put(&value)).unwrap();
                        model.insert(full.to_vec(), Some(value));
                    }
                    2 => {
                        overlay.write(&probe, Change::Tombstone).unwrap();
                        model.insert(full.to_vec(), None);
                    }
                    3 => {
                        let end = vec![0, 0, key.saturating_add(3)];
                        let range = KeyRange { start: full.to_vec(), end: Some(end) };
                        model.retain(|key, _| !range.contains(key));
                        ranges.insert(range.clone());
                        overlay.delete_range(range);
                    }
                    _ => open.push((overlay.cursors(&KeyRange::ALL), model.clone())),
                }
                let expected = model.get(&full[..]).cloned().or_else(|| ranges.contains(&full).then_some(None));
                prop_assert_eq!(overlay.get(&probe).map(|c| c.into_value().map(|v| v.to_vec())), expected);
            }
            prop_assert_eq!(contents(&overlay), model);
            for (cursors, then) in open {
                prop_assert_eq!(scanned(cursors), then, "a scan sees what was written before it, nothing later");
            }
        }
    }

    #[test]
    fn a_key_written_over_and_over_does_not_grow_the_overlay() {
        let mut overlay = overlay();
        let full = [0, 0, 7];
        for round in 0..100_000u32 {
            overlay.write(&Probe::new(&full), Change::Put(&round.to_le_bytes().repeat(25))).unwrap();
        }
        assert_eq!(overlay.keys(), 1);
        assert!(overlay.arena.bytes() < 8 << 20, "{} bytes", overlay.arena.bytes());
    }

    #[test]
    fn a_full_budget_refuses_the_write_and_keeps_what_was_there() {
        let mut overlay = Overlay::new(Budget::new(600 << 10).lease(0, "overlay").unwrap());
        let value = vec![1; 1 << 10];
        let refused = (0..2_000u32).find_map(|n| {
            let full = n.to_be_bytes();
            overlay.write(&Probe::new(&full), Change::Put(&value)).err().map(|error| (n, error))
        });
        let (written, error) = refused.unwrap();
        assert!(matches!(error.kind(), ErrorKind::MemoryLimit { .. }), "{error}");
        assert_eq!(overlay.keys(), written as usize);
    }
}
