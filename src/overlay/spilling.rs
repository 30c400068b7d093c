//! [`Overlay`]: the table, and the parts that did not fit into its share of the memory.

use std::borrow::Cow;

use super::part::{Part, merged};
use super::table::Table;
use crate::backend::Room;
use crate::budget::Lease;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, Probe};
use crate::error::Result;
use crate::ranges::RangeSet;
use crate::run::Layer;

/// How much the lease grows at a time, so that it is not asked for every entry.
const LEASE_STEP_BYTES: u64 = 256 << 10;
/// What the writer of a run holds at most; of a small run it is no more than the run.
const WRITER_BYTES: u64 = 1 << 20;
/// A table smaller than this is not worth a part: whoever has so little waits for those who have more.
const SMALLEST_PART_BYTES: usize = 64 << 10;
/// An entry from this size on can be a part of its own.
const LARGE_ENTRY_BYTES: usize = 64 << 10;
/// So many parts of one level become one of the next: a part costs a look-up a read and a mapping.
const MERGED_PARTS: usize = 64;

/// The uncommitted writes of one transaction: see the module page.
#[derive(Debug)]
pub(crate) struct Overlay {
    table: Table,
    /// Oldest first; all older than the table.
    parts: Vec<Part>,
    /// The bytes of all parts written so far.
    spilled_bytes: u64,
    lease: Lease,
    room: Room,
}

impl Overlay {
    /// An empty overlay, whose memory `lease` answers for.
    pub(crate) fn new(lease: Lease, room: Room) -> Self {
        Self { table: Table::default(), parts: Vec::new(), spilled_bytes: 0, lease, room }
    }

    /// What was written for a key; `None` where nothing was and the search goes on below.
    ///
    /// # Errors
    /// What reading a spilled part met.
    pub(crate) fn get(&self, probe: &Probe<'_>) -> Result<Option<Change<Bytes>>> {
        let mut found = self.table.get(probe);
        let mut parts = self.parts.iter().rev();
        while let (None, Some(part)) = (&found, parts.next()) {
            found = part.get(probe)?;
        }
        Ok(found)
    }

    /// Writes a value (`Put`) or a removal.
    ///
    /// # Errors
    /// `MemoryLimit` where there is neither room nor anything to spill, nor anybody who gives some back in time; what the work
    /// directory reports. Nothing was written then.
    pub(crate) fn write(&mut self, probe: &Probe<'_>, change: Change<&[u8]>) -> Result<()> {
        let bytes = probe.full_key.len() + change.into_value().map_or(0, <[u8]>::len);
        if !self.reserve(bytes, bytes >= LARGE_ENTRY_BYTES)? {
            return self.write_through(probe, change);
        }
        self.table.write(probe, change)?;
        match self.table.bytes_to_rebuild() {
            Some(more) => self.rebuild(more),
            None => Ok(()),
        }
    }

    /// Deletes all keys of a range, in here and below.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn delete_range(&mut self, range: KeyRange) -> Result<()> {
        let bytes = size_of::<KeyRange>() + range.start.len() + range.end.as_ref().map_or(0, Vec::len);
        self.reserve(bytes, false)?;
        self.table.delete_range(range);
        Ok(())
    }

    /// What is written now within `range`, newest first; later writes do not show in it.
    ///
    /// # Errors
    /// What the work directory reports: where the heap has no room to sort in, the sorting is done there.
    pub(crate) fn layers(&mut self, range: &KeyRange) -> Result<Vec<Layer>> {
        let sorting = self.held(0).saturating_add(self.table.bytes_to_sort() as u64);
        if sorting > self.lease.bytes() && !self.lease.try_resize(sorting) {
            self.spill()?; // nothing left to sort; without a place to spill to, reading goes on all the same
        }
        let mut layers: Vec<Layer> = self.table.cursors(range).into_iter().map(Layer::without_ranges).collect(); // logarithmic in the writes
        if !self.table.ranges().is_empty() {
            layers.push(Layer::of_ranges(self.table.ranges().clone()));
        }
        layers.extend(self.parts.iter().rev().map(|part| part.layer(range.clone())));
        Ok(layers)
    }

    /// Makes everything ready to be read in order, once, for the commit.
    ///
    /// # Errors
    /// What the work directory reports.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.parts.is_empty() { Ok(()) } else { self.spill().map(|_| ()) }
    }

    /// The ranges deleted so far, whether before or after an entry that they cover was written.
    pub(crate) fn ranges(&self) -> Cow<'_, RangeSet> {
        if self.parts.is_empty() {
            return Cow::Borrowed(self.table.ranges());
        }
        let mut all = self.table.ranges().clone();
        self.parts.iter().for_each(|part| all.extend(part.ranges()));
        Cow::Owned(all)
    }

    /// Calls `visit` with the newest entry of every key, in ascending order. Before, [`finish`](Self::finish) has been called.
    ///
    /// # Errors
    /// The first error of `visit`; what reading a spilled part met.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&[u8], Change<&[u8]>) -> Result<()>) -> Result<()> {
        if self.parts.is_empty() {
            return self.table.for_each(visit);
        }
        debug_assert!(self.table.is_empty(), "finish has spilled it");
        let mut content = merged(&self.parts);
        while content.advance()? {
            visit(content.key(), content.change())?;
        }
        Ok(())
    }

    /// Makes sure that the lease covers `more` bytes on top of what is held; `false` where only the work directory has room,
    /// for what is large enough to go there by itself.
    fn reserve(&mut self, more: usize, is_large: bool) -> Result<bool> {
        if self.lease.is_asked() {
            self.spill()?;
            self.lease.answered();
        }
        let wanted = self.held(more);
        if wanted <= self.lease.bytes() || self.lease.try_resize(wanted + LEASE_STEP_BYTES) {
            return Ok(true);
        }
        if self.lease.try_resize(wanted) { Ok(true) } else { self.make_room(more, is_large) }
    }

    #[cold]
    fn make_room(&mut self, more: usize, is_large: bool) -> Result<bool> {
        self.lease.ask_larger();
        if self.table.bytes_with(0) >= SMALLEST_PART_BYTES && self.spill()? {
            let wanted = self.held(more);
            if self.lease.try_resize(wanted + LEASE_STEP_BYTES) || self.lease.try_resize(wanted) {
                return Ok(true);
            }
        }
        if is_large && self.room.scratch.is_some() {
            self.spill()?;
            return Ok(false);
        }
        // Here is next to nothing, so the others hold it all.
        match self.lease.resize_waiting(self.held(more), self.room.timeout) {
            Err(error) if !self.table.is_empty() => {
                if self.spill()? && self.lease.try_resize(self.held(more)) {
                    Ok(true)
                } else {
                    Err(error)
                }
            }
            outcome => outcome.map(|()| true),
        }
    }

    /// What is held with an entry of `more` bytes on top, a part or a commit being written included.
    fn held(&self, more: usize) -> u64 {
        let table = self.table.bytes_with(more);
        let writer = (table as u64 + self.spilled_bytes).min(WRITER_BYTES);
        let ranges = self.parts.iter().map(|part| part.ranges().bytes()).sum::<usize>();
        (table + ranges) as u64 + writer
    }

    /// Writes the table out as a part; `false` where there is nothing, or nowhere to write it to.
    fn spill(&mut self) -> Result<bool> {
        let Some(scratch) = self.room.scratch.as_ref().filter(|_| !self.table.is_empty()) else { return Ok(false) };
        let part = Part::of_table(scratch, &self.table)?;
        self.spilled_bytes += part.file_bytes();
        self.parts.push(part);
        self.table = Table::default();
        self.lease.count_spill();
        self.merge_parts()?;
        let held = self.held(0);
        if held < self.lease.bytes() {
            self.lease.try_resize(held); // giving back always works
        }
        Ok(true)
    }

    /// Writes one entry past the table, which is empty.
    fn write_through(&mut self, probe: &Probe<'_>, change: Change<&[u8]>) -> Result<()> {
        let Some(scratch) = &self.room.scratch else { return Ok(()) }; // there is one, or `reserve` had said no
        let part = Part::of_one(scratch, probe.full_key, change)?;
        self.spilled_bytes += part.file_bytes();
        self.parts.push(part);
        self.lease.count_spill();
        self.merge_parts()
    }

    fn merge_parts(&mut self) -> Result<()> {
        while let (Some(scratch), Some(last)) = (&self.room.scratch, self.parts.last()) {
            let level = last.level;
            let alike = self.parts.iter().rev().take_while(|part| part.level == level).count();
            if alike < MERGED_PARTS {
                break;
            }
            let first = self.parts.len() - alike;
            let merged = Part::of_parts(scratch, self.parts.get(first..).unwrap_or_default())?;
            self.parts.truncate(first);
            self.parts.push(merged);
        }
        Ok(())
    }

    /// Lets go of overwritten entries: in heap where a second copy of the rest has room, else by spilling.
    fn rebuild(&mut self, more: usize) -> Result<()> {
        let wanted = self.held(0) + more as u64;
        if self.lease.try_resize(wanted.max(self.lease.bytes())) {
            self.table.rebuild();
        } else if !self.spill()? {
            return Ok(()); // it is tried again with the next write, when others may have given some back
        }
        self.lease.try_resize(self.held(0).min(self.lease.bytes()));
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn spill_now(&mut self) {
        self.spill().unwrap();
    }

    #[cfg(test)]
    pub(super) fn part_count(&self) -> usize {
        self.parts.len()
    }
}
