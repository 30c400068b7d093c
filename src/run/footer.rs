//! What follows the stripes of a run: range tombstones, metadata, properties, top index, and the footer that finds them.

use std::path::Path;

use super::header::Layout;
use crate::checksum::crc32;
use crate::codec::{Put, Reader};
use crate::entry::{FAMILY_BYTES, FamilyId, KeyRange, MAX_KEY_BYTES};
use crate::error::{Error, Result};
use crate::ranges::RangeSet;

/// The footer has one length, so that it is found from the end of the file.
pub(super) const FOOTER_BYTES: u64 = 100;
const END_MAGIC: [u8; 8] = *b"\nNURVLA\x89";

/// What a run holds, in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Point entries, tombstones among them.
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    /// Bytes of all full keys (two of each are the family's).
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    /// Point entries of each family that has some, by ascending number.
    pub(crate) families: Vec<(FamilyId, u64)>,
    /// The first full key; empty in a run without entries.
    pub(crate) smallest: Vec<u8>,
    /// The last full key; empty in a run without entries.
    pub(crate) largest: Vec<u8>,
}

impl Properties {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        for number in [self.entries, self.tombstones, self.key_bytes, self.value_bytes] {
            out.put_u64(number);
        }
        out.put_u16(u16::try_from(self.families.len()).unwrap_or(u16::MAX)); // at most 1024
        for (family, entries) in &self.families {
            out.put_u16(family.0);
            out.put_u64(*entries);
        }
        put_key(&mut out, &self.smallest);
        put_key(&mut out, &self.largest);
        out
    }

    pub(super) fn decode(mut reader: Reader<'_>) -> Result<Self> {
        let mut properties = Self {
            entries: reader.u64("entry count")?,
            tombstones: reader.u64("tombstone count")?,
            key_bytes: reader.u64("key bytes")?,
            value_bytes: reader.u64("value bytes")?,
            ..Self::default()
        };
        for _ in 0..reader.u16("family count")? {
            let family = FamilyId(reader.u16("family")?);
            properties.families.push((family, reader.u64("entries of a family")?));
        }
        properties.smallest = read_key(&mut reader)?.to_vec();
        properties.largest = read_key(&mut reader)?.to_vec();
        reader.finish()?;
        Ok(properties)
    }
}

fn put_key(out: &mut Vec<u8>, key: &[u8]) {
    out.put_u32(u32::try_from(key.len()).unwrap_or(u32::MAX)); // at most 64 KiB + 2
    out.extend_from_slice(key);
}

fn read_key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8]> {
    let length = usize::try_from(reader.u32("key length")?).unwrap_or(usize::MAX);
    if length > MAX_KEY_BYTES + FAMILY_BYTES {
        return Err(reader.corrupt("a key of at most 64 KiB", format!("{length} bytes")));
    }
    reader.take(length, "key")
}

pub(super) fn encode_ranges(ranges: &RangeSet) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let count = u32::try_from(ranges.len()).map_err(|e| Error::invalid("too many range tombstones").with_source(e))?;
    out.put_u32(count);
    for range in ranges.iter() {
        put_key(&mut out, &range.start);
        out.put_u8(u8::from(range.end.is_some()));
        put_key(&mut out, range.end.as_deref().unwrap_or_default());
    }
    Ok(out)
}

/// Reads range tombstones, which are as [`RangeSet`] keeps them: ascending and apart.
pub(super) fn decode_ranges(mut reader: Reader<'_>) -> Result<RangeSet> {
    let mut ranges = RangeSet::default();
    let mut open_from: Option<Vec<u8>> = Some(Vec::new()); // where the next range may start; `None`: nowhere
    for number in 0..reader.u32("range count")? {
        let start = read_key(&mut reader)?.to_vec();
        let flag = reader.u8("range end flag")?;
        let end = read_key(&mut reader)?.to_vec();
        if flag > 1 || (flag == 0 && !end.is_empty()) {
            return Err(reader.corrupt("a range with or without an end", format!("flag {flag}")));
        }
        let range = KeyRange { start, end: (flag == 1).then_some(end) };
        let ascends = open_from.as_ref().is_some_and(|least| *least < range.start || number == 0);
        if range.is_empty() || !ascends {
            return Err(reader.corrupt("ranges that ascend", format!("{range:?}")));
        }
        open_from.clone_from(&range.end);
        ranges.insert(range);
    }
    reader.finish()?;
    Ok(ranges)
}

/// Where a block lies, and its CRC.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) crc: u32,
}

impl Place {
    /// The place of `bytes` written at `offset`.
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Result<Self> {
        let length =
            u32::try_from(bytes.len()).map_err(|e| Error::invalid("a block of 4 GiB or more").with_source(e))?;
        Ok(Self { offset, length, crc: crc32(bytes) })
    }

    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// The last bytes of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Footer {
    pub(super) pages: u64,
    pub(super) ranges: Place,
    pub(super) metadata: Place,
    pub(super) properties: Place,
    pub(super) top: Place,
}

impl Footer {
    pub(super) fn encode(&self, layout: &Layout) -> Vec<u8> {
        let mut out = Vec::with_capacity(100);
        out.put_u64(self.top.end().saturating_add(FOOTER_BYTES)); // the file's length
        out.put_u64(self.pages);
        for place in [&self.ranges, &self.metadata, &self.properties, &self.top] {
            out.put_u64(place.offset);
            out.put_u32(place.length);
            out.put_u32(place.crc);
        }
        out.put_u32(layout.header_bytes);
        out.put_u32(layout.header_crc);
        let crc = crc32(&out);
        out.put_u32(crc);
        out.extend_from_slice(&END_MAGIC);
        out
    }

    /// Reads the footer of a file of `file_bytes` with the header of `layout`.
    pub(super) fn decode(path: &Path, file_bytes: u64, layout: &Layout, bytes: &[u8; 100]) -> Result<Self> {
        let at = file_bytes.saturating_sub(FOOTER_BYTES);
        let magic = bytes.last_chunk::<8>().unwrap_or(&[0; 8]);
        if *magic != END_MAGIC {
            let found = magic.escape_ascii().to_string();
            return Err(Error::corrupt(path, file_bytes.saturating_sub(8), "the end magic of a run", found));
        }
        let mut reader = Reader::new(path, at, bytes);
        let length = reader.u64("file length")?;
        let pages = reader.u64("page count")?;
        let mut place =
            || Ok(Place { offset: reader.u64("offset")?, length: reader.u32("length")?, crc: reader.u32("CRC")? });
        let [ranges, metadata, properties, top] = [place()?, place()?, place()?, place()?];
        let bound_to = (reader.u32("header length")?, reader.u32("header CRC")?);
        let crc = reader.u32("footer CRC")?;
        let actual = crc32(bytes.get(..88).unwrap_or_default());
        if crc != actual {
            return Err(Error::corrupt(path, at, format!("footer CRC {crc:08x}"), format!("{actual:08x}")));
        }
        if length != file_bytes {
            return Err(Error::corrupt(path, at, format!("a file of {length} bytes"), format!("{file_bytes}")));
        }
        if bound_to != (layout.header_bytes, layout.header_crc) {
            return Err(Error::corrupt(path, at, "the header that this footer was written for", "another header"));
        }
        let starts = [ranges.offset, metadata.offset, properties.offset, top.offset, at];
        let ends = [u64::from(layout.header_bytes), ranges.end(), metadata.end(), properties.end(), top.end()];
        if starts.first() < ends.first() || starts.iter().zip(ends).skip(1).any(|(start, end)| *start != end) {
            return Err(Error::corrupt(path, at, "blocks that follow each other", format!("{starts:?} {ends:?}")));
        }
        // A page takes 11 bytes and 28 in its index at least; this bounds the bitmap by the file's length.
        if pages > file_bytes / 32 {
            return Err(Error::corrupt(path, at, "as many pages as fit into the file", pages.to_string()));
        }
        Ok(Self { pages, ranges, metadata, properties, top })
    }
}
