//! [`Part`]: writes that were too many for the heap, as a sorted file in the work directory.

use std::sync::Arc;

use super::table::Table;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, Families, KeyRange, Name, Probe, StateStoreId, split_full_key};
use crate::error::Result;
use crate::fs::{ScratchDir, ScratchFile};
use crate::ranges::RangeSet;
use crate::run::{Access, Layer, Merge, PageCodec, Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{Epoch, RunId, RunKind, StoreUid, Version};

/// A sorted part of a transaction's writes, newer than the parts before it. Its file goes when it is dropped.
#[derive(Debug)]
pub(super) struct Part {
    run: Arc<Run>,
    /// How often its entries have been written: 0 for what came from the heap.
    pub(super) level: u32,
    _file: ScratchFile,
}

impl Part {
    /// Writes out a table.
    pub(super) fn of_table(scratch: &ScratchDir, table: &Table) -> Result<Self> {
        let mut families = Highest(table.ranges().iter().map(|range| family_of(&range.start)).max().unwrap_or(0));
        table.keys_in_no_order(|key| families.note(key));
        Self::write(scratch, 0, families, table.ranges(), |run| table.for_each(|key, change| run.add(key, change)))
    }

    /// Writes out one entry that is too large for the heap.
    pub(super) fn of_one(scratch: &ScratchDir, full_key: &[u8], change: Change<&[u8]>) -> Result<Self> {
        let families = Highest(family_of(full_key));
        Self::write(scratch, 0, families, &RangeSet::default(), |run| run.add(full_key, change))
    }

    /// Writes adjacent parts, oldest first, as one.
    pub(super) fn of_parts(scratch: &ScratchDir, parts: &[Self]) -> Result<Self> {
        let level = parts.iter().map(|part| part.level).max().unwrap_or(0) + 1;
        let families =
            Highest(parts.iter().map(|part| part.run.header().families.names().len()).max().unwrap_or(1) - 1);
        let mut ranges = RangeSet::default();
        for part in parts {
            ranges.extend(part.ranges());
        }
        Self::write(scratch, level, families, &ranges, |run| {
            let mut content = merged(parts);
            while content.advance()? {
                run.add(content.key(), content.change())?;
            }
            Ok(())
        })
    }

    fn write(
        scratch: &ScratchDir,
        level: u32,
        families: Highest,
        ranges: &RangeSet,
        add_all: impl FnOnce(&mut RunWriter<'_>) -> Result<()>,
    ) -> Result<Self> {
        let (file, mut out) = scratch.create()?;
        let header = header(families)?;
        let mut run = RunWriter::new(&mut *out, file.path(), &header, WriterOptions::packed())?;
        add_all(&mut run)?;
        run.range_tombstones(ranges)?;
        run.finish(&[])?;
        drop(out);
        let run = Run::open(file.open()?, file.path().to_path_buf(), Access::Mapped)?;
        Ok(Self { run, level, _file: file })
    }

    /// What the part says about a key; `None` where the search goes on in older ones.
    pub(super) fn get(&self, probe: &Probe<'_>) -> Result<Option<Change<Bytes>>> {
        let found = self.run.get(probe)?;
        Ok(found.or_else(|| self.run.covers(probe.full_key).then_some(Change::Tombstone)))
    }

    pub(super) fn layer(&self, range: KeyRange) -> Layer {
        self.run.layer(range)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.run.file_bytes()
    }

    /// The ranges that it deletes in older parts and below.
    pub(super) fn ranges(&self) -> &RangeSet {
        self.run.ranges()
    }
}

/// The entries of parts, oldest first, as one.
pub(super) fn merged(parts: &[Part]) -> Merge {
    Merge::new(parts.iter().rev().map(|part| part.layer(KeyRange::ALL)).collect())
}

/// The highest family that occurs.
#[derive(Debug, Clone, Copy)]
struct Highest(usize);

impl Highest {
    fn note(&mut self, full_key: &[u8]) {
        self.0 = self.0.max(family_of(full_key));
    }
}

fn family_of(full_key: &[u8]) -> usize {
    split_full_key(full_key).map_or(0, |(family, _)| usize::from(family.0))
}

/// A part never leaves its transaction, so that its header says little: a run needs one.
fn header(families: Highest) -> Result<RunHeader> {
    let id = RunId([1; 16]);
    let names = (0..=families.0).map(|number| Name::new(number.to_string())).collect::<Result<Vec<_>>>()?; // at most MAX_FAMILIES
    Ok(RunHeader {
        kind: RunKind::Delta,
        from: Version::EMPTY,
        to: Version::EMPTY.next(),
        epoch: Epoch::NONE.next(),
        id,
        tip: id,
        parent: RunId::NONE,
        uid: StoreUid([1; 16]),
        store: StateStoreId::new("spill", 0, "part")?,
        families: Families::from_names(names)?,
        codec: PageCodec::None,
    })
}
