//! A way in for fuzzers: any bytes as a run, read in every way there is.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::header::{PageCodec, RunHeader};
use super::reader::Run;
use super::source::Access;
use super::writer::{RunWriter, WriterOptions};
use crate::bytes::Bytes;
use crate::entry::{Cursor, Families, KeyRange, Probe, StateStoreId};
use crate::error::{Error, Result};
use crate::fs::{ReadFile, WriteFile};
use crate::ranges::RangeSet;
use crate::version::{Epoch, RunId, RunKind, StoreUid, Version};

/// Reads `bytes` as a run from end to end: opens, looks up, scans, verifies. Gives the number of entries.
///
/// # Errors
/// Whatever is wrong with them. Never panics, and never allocates more than they can justify.
#[doc(hidden)]
pub fn read_untrusted(bytes: &[u8]) -> Result<u64> {
    let mut entries = 0;
    for access in [Access::Mapped, Access::Positioned] {
        let file = || Arc::new(InMemory(Bytes::copy_from(bytes)));
        entries = read(&Run::open(file(), PathBuf::from("fuzz"), access)?)?;
        // Past the checksums, where a fuzzer seldom gets by itself.
        read(&Run::open_without_page_checksums(file(), PathBuf::from("fuzz"), access)?).unwrap_or_default();
    }
    Ok(entries)
}

/// As [`read_untrusted`], on a good run in which the bytes at some places were replaced, pages' checksums not looked at.
///
/// # Errors
/// As [`read_untrusted`].
#[doc(hidden)]
pub fn read_edited(edits: &[(u16, u8)]) -> Result<u64> {
    let mut bytes = sample()?;
    for (place, byte) in edits {
        let length = bytes.len().max(1);
        if let Some(old) = bytes.get_mut(usize::from(*place) % length) {
            *old = *byte;
        }
    }
    read(&Run::open_without_page_checksums(Arc::new(InMemory(bytes.into())), PathBuf::from("fuzz"), Access::Mapped)?)
}

fn read(run: &Arc<Run>) -> Result<u64> {
    let mut cursor = run.cursor(KeyRange::ALL);
    let mut entries = 0;
    while cursor.advance()? {
        let key = cursor.key().to_vec();
        run.get(&Probe::new(&key))?;
        entries += 1;
    }
    run.verify(&mut |_| ControlFlow::Continue(()))?;
    Ok(entries)
}

/// A small delta with every kind of entry.
fn sample() -> Result<Vec<u8>> {
    let mut file = Growing(Vec::new());
    let header = RunHeader {
        kind: RunKind::Delta,
        from: Version(6),
        to: Version(7),
        epoch: Epoch(3),
        id: RunId([2; 16]),
        tip: RunId([2; 16]),
        parent: RunId([1; 16]),
        uid: StoreUid([3; 16]),
        store: StateStoreId::new("fuzz", 0, "run")?,
        families: Families::default(),
        codec: PageCodec::None,
    };
    let mut writer = RunWriter::new(&mut file, Path::new("fuzz"), &header, WriterOptions::packed())?;
    for number in 0..40_u8 {
        let key = [0, 0, number];
        match number % 5 {
            0 => writer.add(&key, crate::entry::Change::Tombstone)?,
            1 => writer.add(&key, crate::entry::Change::Put(&[number; 5_000]))?,
            _ => writer.add(&key, crate::entry::Change::Put(&[number; 9]))?,
        }
    }
    let mut ranges = RangeSet::default();
    ranges.insert(KeyRange { start: vec![0, 0, 50], end: Some(vec![0, 0, 60]) });
    writer.range_tombstones(&ranges)?;
    writer.finish(b"position")?;
    Ok(file.0)
}

#[derive(Debug)]
struct Growing(Vec<u8>);

impl WriteFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct InMemory(Bytes);

impl ReadFile for InMemory {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end));
        let part = part.ok_or_else(|| Error::corrupt("fuzz", offset, "more bytes", "the end"))?;
        buffer.copy_from_slice(part);
        Ok(())
    }

    fn map(&self) -> Result<Bytes> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sample_is_a_good_run() {
        assert_eq!(read_untrusted(&sample().unwrap()).unwrap(), 40);
        assert_eq!(read_edited(&[]).unwrap(), 40);
    }

    proptest! {
        #[test]
        fn a_run_edited_anywhere_is_read_or_refused_and_nothing_worse(
            edits in prop::collection::vec(any::<(u16, u8)>(), 1..20),
        ) {
            let entries = read_edited(&edits).unwrap_or_default();
            prop_assert!(entries <= 60_000);
        }
    }
}
