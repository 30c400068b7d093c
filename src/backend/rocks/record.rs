//! Marks, version records and their keys as bytes, for the rows of `versions` and `meta`.

use std::path::Path;

use crate::backend::contract::{StoreNumber, VersionRecord};
use crate::bytes::Bytes;
use crate::codec::{Put, Reader};
use crate::entry::MAX_METADATA_BYTES;
use crate::error::Result;
use crate::version::{Epoch, Mark, RunId, Version, VersionId};

/// store u32 · version u64 · epoch u64, all big-endian, so that they sort.
pub(super) fn version_key(store: StoreNumber, at: VersionId) -> [u8; 20] {
    let mut key = [0; 20];
    let parts = store.0.to_be_bytes().into_iter().chain(at.version.0.to_be_bytes()).chain(at.epoch.0.to_be_bytes());
    key.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
    key
}

impl VersionRecord {
    const FORMAT: u8 = 1;

    /// format u8 · mark · entries u64 · bytes u64 · metadata length u32 · metadata; little-endian.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.metadata.len());
        out.put_u8(Self::FORMAT);
        put_mark(&mut out, &self.at);
        out.put_u64(self.entries);
        out.put_u64(self.bytes);
        let kept = self.metadata.get(..MAX_METADATA_BYTES).unwrap_or(&self.metadata);
        out.put_u32(u32::try_from(kept.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(kept);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Path::new("version record"), 0, bytes);
        let format = reader.u8("record format")?;
        if format != Self::FORMAT {
            return Err(reader.corrupt(format!("format {}", Self::FORMAT), format!("format {format}")));
        }
        let at = read_mark(&mut reader)?;
        let (entries, bytes) = (reader.u64("entry count")?, reader.u64("byte count")?);
        let length = usize::try_from(reader.u32("metadata length")?).unwrap_or(usize::MAX);
        let metadata = Bytes::copy_from(reader.take(length, "metadata")?);
        reader.finish()?;
        Ok(Self { at, entries, bytes, metadata })
    }
}

/// version u64 · epoch u64 · run id 16 bytes.
pub(super) fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    out.put_u64(mark.at.version.0);
    out.put_u64(mark.at.epoch.0);
    out.extend_from_slice(&mark.tip.0);
}

pub(super) fn read_mark(reader: &mut Reader<'_>) -> Result<Mark> {
    let version = Version(reader.u64("version")?);
    let epoch = Epoch(reader.u64("epoch")?);
    Ok(Mark { at: VersionId::new(version, epoch), tip: RunId(reader.array("run id")?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_record_comes_back_as_it_was_and_every_cut_is_noticed() {
        let record = VersionRecord {
            at: Mark { at: VersionId::new(Version(7), Epoch(3)), tip: RunId([9; 16]) },
            entries: 10,
            bytes: 1 << 40,
            metadata: Bytes::copy_from(b"offset 12"),
        };
        let encoded = record.encode();
        assert_eq!(VersionRecord::decode(&encoded).unwrap(), record);
        for cut in 0..encoded.len() {
            assert!(VersionRecord::decode(&encoded[..cut]).is_err(), "cut at {cut}");
        }
        assert!(VersionRecord::decode(&[encoded.as_slice(), b"x"].concat()).is_err());
    }
}
