//! [`Table`]: the hash table over the arena, which holds what is not spilled.

use std::sync::Arc;

use hashbrown::HashTable;

use super::arena::{Arena, Place};
use super::rows::{Row, RowCursor, SortedRows, merge};
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;

/// A slot of the hash table with its control byte, at the load it grows at.
const SLOT_BYTES: usize = 8;
/// What putting a key in order takes: see [`Table::for_each`].
const ORDER_BYTES: usize = size_of::<(u64, u32)>();
/// Dead bytes below this are not worth a rebuild.
const REBUILD_FROM_BYTES: usize = 1 << 20;

/// Writes in heap. Whoever owns it asks how much it holds, and would hold, and answers for that.
#[derive(Debug, Default)]
pub(super) struct Table {
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

impl Table {
    /// What was written for a key; `None` where nothing was and the search goes on below.
    pub(super) fn get(&self, probe: &Probe<'_>) -> Option<Change<Bytes>> {
        match self.find(probe) {
            Some(entry) => Some(self.change_bytes(entry)),
            None => self.ranges.contains(probe.full_key).then_some(Change::Tombstone),
        }
    }

    /// Writes a value (`Put`) or a removal.
    ///
    /// # Errors
    /// `LimitExceeded` past 4 Gi entries; nothing was written then.
    pub(super) fn write(&mut self, probe: &Probe<'_>, change: Change<&[u8]>) -> Result<()> {
        let value = change.into_value().unwrap_or_default();
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
        Ok(())
    }

    /// Deletes all keys of a range, in here and below.
    pub(super) fn delete_range(&mut self, range: KeyRange) {
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
    pub(super) fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Calls `visit` with every key that has a point entry.
    pub(super) fn keys_in_no_order(&self, mut visit: impl FnMut(&[u8])) {
        self.newest.iter().for_each(|number| visit(self.key(*number)));
    }

    /// Cursors over what is written now, newest first; later writes do not show in them.
    pub(super) fn cursors(&mut self, range: &KeyRange) -> Vec<Box<dyn Cursor>> {
        self.sort_new_entries();
        let lists = self.sorted.iter().rev();
        lists.map(|rows| Box::new(RowCursor::new(Arc::clone(rows), range.clone())) as Box<dyn Cursor>).collect()
    }

    /// Calls `visit` with the newest entry of every key, in ascending order.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&[u8], Change<&[u8]>) -> Result<()>) -> Result<()> {
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

    /// Whether anything was written.
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty() && self.ranges.is_empty()
    }

    /// What is held, in bytes, once an entry of `more` bytes is in, and while all of it is put in order for a commit.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        let doubled = |capacity: usize, length: usize| if length < capacity { capacity } else { (capacity * 2).max(4) };
        let entries = doubled(self.entries.capacity(), self.entries.len());
        let slots = doubled(self.newest.capacity(), self.newest.len());
        let rows = self.sorted.iter().map(|rows| rows.len()).sum::<usize>();
        self.arena.bytes_with(more)
            + entries * size_of::<Entry>()
            + slots * SLOT_BYTES
            + (self.newest.len() + 1) * ORDER_BYTES
            + rows * size_of::<Row>()
            + self.ranges.bytes()
    }

    /// What a scan would hold on top, in bytes, while it sorts what is new.
    pub(super) fn bytes_to_sort(&self) -> usize {
        let new = self.entries.len() - self.sorted_entries;
        let sorted = self.sorted.iter().map(|rows| rows.len()).sum::<usize>();
        if new == 0 { 0 } else { (new.min(self.newest.len()) + sorted) * size_of::<Row>() }
    }

    /// What [`rebuild`](Self::rebuild) would hold on top, in bytes, where it is worth it.
    pub(super) fn bytes_to_rebuild(&self) -> Option<usize> {
        let all = self.arena.bytes_with(0);
        let live = all.saturating_sub(self.dead_bytes) + self.newest.len() * (size_of::<Entry>() + SLOT_BYTES);
        (self.dead_bytes > REBUILD_FROM_BYTES.max(all / 2)).then_some(live)
    }

    /// Copies what is live into a fresh arena. Scans that are under way keep the old chunks.
    pub(super) fn rebuild(&mut self) {
        let mut arena = Arena::default();
        let mut entries = Vec::with_capacity(self.newest.len());
        let mut newest = HashTable::with_capacity(self.newest.len());
        for number in &self.newest {
            let Some(entry) = self.entries.get(*number as usize).copied() else { continue };
            let (key, change) = self.parts(entry);
            let place = arena.push(key, change.into_value().unwrap_or_default());
            let (Some(place), Ok(number)) = (place, u32::try_from(entries.len())) else { return };
            entries.push(Entry { place, ..entry });
            newest.insert_unique(entry.hash, number, |n: &u32| entries.get(*n as usize).map_or(0, |e: &Entry| e.hash));
        }
        (self.arena, self.entries, self.newest) = (arena, entries, newest);
        self.sorted.clear();
        (self.sorted_entries, self.dead_bytes) = (0, 0);
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
