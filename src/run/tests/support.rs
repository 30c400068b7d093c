//! Files in memory, and runs written and opened in one call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, Families, FamilyId, KeyRange, Name, StateStoreId, full_key};
use crate::error::{Error, Result};
use crate::fs::{ReadFile, WriteFile};
use crate::ranges::RangeSet;
use crate::run::{Access, Packing, PageCodec, Run, RunHeader, RunWriter, WriterOptions};
use crate::version::{Epoch, RunId, RunKind, StoreUid, Version};

#[derive(Debug, Default)]
pub(super) struct MemoryFile {
    pub(super) bytes: Vec<u8>,
    pub(super) appends: Vec<usize>,
}

impl WriteFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        self.appends.push(bytes.len());
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryRead(Bytes);

impl ReadFile for MemoryRead {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).unwrap();
        match self.0.get(start..start + buffer.len()) {
            Some(part) => buffer.copy_from_slice(part),
            None => return Err(Error::corrupt("memory", offset, "more bytes", "the end")),
        }
        Ok(())
    }

    fn map(&self) -> Result<Bytes> {
        Ok(self.0.clone())
    }
}

/// Entries by full key; `None` is a tombstone.
pub(super) type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub(super) fn header(kind: RunKind, codec: PageCodec) -> RunHeader {
    let from = Version(if kind == RunKind::Snapshot { 0 } else { 6 });
    let parent = if kind == RunKind::Snapshot { RunId::NONE } else { RunId([0xa1; 16]) };
    RunHeader {
        kind,
        from,
        to: Version(7),
        epoch: Epoch(3),
        id: RunId([0xb2; 16]),
        tip: RunId([0xb2; 16]),
        parent,
        uid: StoreUid([0xc3; 16]),
        store: StateStoreId::new("legs", 4, "default").unwrap(),
        families: {
            let mut families = Families::default();
            families.find_or_add(Name::new("timers").unwrap()).unwrap();
            families
        },
        codec,
    }
}

pub(super) fn write_with(
    header: &RunHeader,
    options: WriterOptions,
    entries: &Entries,
    ranges: &RangeSet,
    metadata: &[u8],
) -> Vec<u8> {
    let mut file = MemoryFile::default();
    let mut writer = RunWriter::new(&mut file, Path::new("x.run"), header, options).unwrap();
    for (key, value) in entries {
        match value {
            Some(value) => writer.put(key, value).unwrap(),
            None => writer.tombstone(key).unwrap(),
        }
    }
    writer.range_tombstones(ranges).unwrap();
    let summary = writer.finish(metadata).unwrap();
    assert_eq!(summary.file_bytes, file.bytes.len() as u64);
    file.bytes
}

pub(super) fn packed() -> WriterOptions {
    WriterOptions { packing: Packing::Packed, page_bytes: None }
}

pub(super) fn write(kind: RunKind, entries: &Entries) -> Vec<u8> {
    write_with(&header(kind, PageCodec::None), WriterOptions::default(), entries, &RangeSet::default(), b"")
}

pub(super) fn open(bytes: Vec<u8>, access: Access) -> Result<Arc<Run>> {
    Run::open(Arc::new(MemoryRead(bytes.into())), PathBuf::from("x.run"), access)
}

pub(super) fn open_unchecked(bytes: Vec<u8>) -> Result<Arc<Run>> {
    Run::open_without_page_checksums(Arc::new(MemoryRead(bytes.into())), PathBuf::from("x.run"), Access::Mapped)
}

pub(super) fn key(text: impl AsRef<[u8]>) -> Vec<u8> {
    full_key(FamilyId::DEFAULT, text.as_ref())
}

pub(super) fn numbered(count: u64, value_bytes: usize) -> Entries {
    let value =
        |n: u64| (0..value_bytes).map(|i| u8::try_from((n * 31 + i as u64) % 256).unwrap()).collect::<Vec<u8>>();
    (0..count).map(|n| (key(format!("{n:08}")), Some(value(n)))).collect()
}

pub(super) fn collect(cursor: &mut dyn Cursor) -> Result<Entries> {
    let mut entries = Entries::new();
    while cursor.advance()? {
        assert_eq!(cursor.key_bytes(), *cursor.key());
        assert_eq!(cursor.change_bytes().map(|v| v.to_vec()), cursor.change().map(<[u8]>::to_vec));
        entries.push((cursor.key().to_vec(), cursor.change().into_value().map(<[u8]>::to_vec)));
    }
    assert!(!cursor.advance()?, "the end is for good");
    Ok(entries)
}

pub(super) fn scan(run: &Arc<Run>, range: KeyRange) -> Result<Entries> {
    collect(&mut run.cursor(range))
}

pub(super) fn as_change(value: Option<&Vec<u8>>) -> Change<Bytes> {
    value.map_or(Change::Tombstone, |value| Change::Put(Bytes::copy_from(value)))
}
