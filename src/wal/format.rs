//! The bytes of a segment, both directions side by side; the law is `docs/formats/log.md`.

use std::path::Path;

use super::record::{LogId, Lsn, RecordKind};
use crate::checksum::crc32;
use crate::codec::{Put, Reader};
use crate::error::{Error, ErrorKind, Result};

const MAGIC: [u8; 8] = *b"ALVMWLOG";
const SEAL_MAGIC: [u8; 8] = *b"ALVMSEAL";
const FORMAT: u32 = 1;
const RECYCLED: u32 = 1;

/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER_BYTES: usize = 80;
/// Bytes of a frame's header.
pub(super) const FRAME_HEADER_BYTES: usize = 32;
/// Bytes of the trailer behind a seal.
pub(super) const TRAILER_BYTES: usize = 20;
/// A payload's most bytes. Checked before anything is written, and before anything is read.
pub const MAX_RECORD_BYTES: usize = 256 << 20;
/// Bytes between two entries of a seal's index, at least.
pub(super) const INDEX_EVERY_BYTES: u64 = 64 << 10;
pub(super) const INDEX_ENTRY_BYTES: usize = 16;
pub(super) const SEAL_BYTES: usize = 60;

/// What a segment says of itself in its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log: LogId,
    /// Its number, which is also in its name.
    pub segment: u64,
    /// The LSN of its first record. What earlier segments hold from this LSN on is void.
    pub first: Lsn,
    /// Everything up to this LSN was durable before the segment was made.
    pub durable: Lsn,
    /// Seeds every checksum in the segment, so that bytes of an earlier life are not taken for its own.
    pub salt: u64,
    /// When it was made, in milliseconds since 1970; for people.
    pub created_ms: u64,
    /// Whether the file had an earlier life: what follows the last frame is old bytes then.
    pub recycled: bool,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.put_u32(FORMAT);
        out.put_u32(if self.recycled { RECYCLED } else { 0 });
        out.extend_from_slice(&self.log.0);
        for field in [self.segment, self.first.0, self.durable.0, self.salt, self.created_ms] {
            out.put_u64(field);
        }
        out.put_u32(0); // encryption
        out.put_u32(crc32(&out));
        out
    }

    /// # Errors
    /// `Corrupt` where these are not the bytes of a header, `Unsupported` where they are those of a later build.
    pub(super) fn decode(file: &Path, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(file, 0, bytes);
        let magic: [u8; 8] = reader.array("magic")?;
        if magic != MAGIC {
            return Err(Error::corrupt(file, 0, "the magic of a log segment", format!("{magic:02x?}")));
        }
        let format = reader.u32("format number")?;
        if format != FORMAT {
            return Err(unsupported(file, &format!("log format {format}")));
        }
        let (covered, crc) = (bytes.get(..SEGMENT_HEADER_BYTES - 4).unwrap_or_default(), stored_crc(bytes));
        if crc != Some(crc32(covered)) {
            let expected = format!("the header's checksum {:08x}", crc32(covered));
            return Err(Error::corrupt(file, 76, expected, crc.map_or("the end".into(), |crc| format!("{crc:08x}"))));
        }
        let flags = reader.u32("flags")?;
        let header = Self {
            log: LogId(reader.array("log id")?),
            segment: reader.u64("segment number")?,
            first: Lsn(reader.u64("first LSN")?),
            durable: Lsn(reader.u64("durable LSN")?),
            salt: reader.u64("salt")?,
            created_ms: reader.u64("time")?,
            recycled: flags & RECYCLED != 0,
        };
        let encryption = reader.u32("encryption")?;
        if flags & !RECYCLED != 0 || encryption != 0 {
            return Err(unsupported(file, &format!("log flags {flags:x}, encryption {encryption}")));
        }
        if header.first == Lsn::NONE || header.durable >= header.first {
            let found = format!("first LSN {}, durable LSN {}", header.first, header.durable);
            return Err(Error::corrupt(file, 40, "a first LSN above the durable one", found));
        }
        Ok(header)
    }
}

fn stored_crc(header: &[u8]) -> Option<u32> {
    let bytes = header.get(SEGMENT_HEADER_BYTES - 4..SEGMENT_HEADER_BYTES)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn unsupported(file: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{} has {what}", file.display()))
}

/// What a frame is. The numbers are those of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Record(RecordKind),
    Mark,
    Seal,
}

impl FrameKind {
    fn tag(self) -> u8 {
        match self {
            Self::Record(RecordKind::Plain) => 1,
            Self::Record(RecordKind::Batch) => 2,
            Self::Mark => 3,
            Self::Seal => 4,
        }
    }

    fn of(tag: u8) -> Option<Self> {
        Some(match tag {
            1 => Self::Record(RecordKind::Plain),
            2 => Self::Record(RecordKind::Batch),
            3 => Self::Mark,
            4 => Self::Seal,
            _ => return None,
        })
    }
}

/// How a payload is compressed. Anything but none puts the payload's own length, 4 bytes, in front of what is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RecordCodec {
    /// As it is.
    #[default]
    None,
    /// LZ4, block format.
    Lz4,
    /// zstd, level 1.
    Zstd,
}

/// The header of a frame. Of a mark, `length` is the bytes of its group, `payload_crc` the number of its records, `lsn` the durable LSN and
/// `time_ms` the LSN of the group's first record; nothing follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: u32,
    pub(super) payload_crc: u32,
    pub(super) kind: FrameKind,
    pub(super) codec: RecordCodec,
    pub(super) stream: u16,
    pub(super) lsn: Lsn,
    pub(super) time_ms: u64,
}

impl FrameHeader {
    /// Bytes of the frame after its header.
    pub(super) fn body_bytes(&self) -> usize {
        if self.kind == FrameKind::Mark { 0 } else { self.length as usize }
    }

    pub(super) fn encode(&self, salt: u64) -> [u8; FRAME_HEADER_BYTES] {
        let codec = match self.codec {
            RecordCodec::None => 0,
            RecordCodec::Lz4 => 1,
            RecordCodec::Zstd => 2,
        };
        let mut salted = [0; FRAME_HEADER_BYTES + 4];
        let fields: [&[u8]; 8] = [
            &salt.to_le_bytes(),
            &self.length.to_le_bytes(),
            &self.payload_crc.to_le_bytes(),
            &[self.kind.tag()],
            &[codec],
            &self.stream.to_le_bytes(),
            &self.lsn.0.to_le_bytes(),
            &self.time_ms.to_le_bytes(),
        ];
        let mut rest = salted.as_mut_slice();
        for field in fields {
            let (to, later) = rest.split_at_mut(field.len().min(rest.len()));
            to.copy_from_slice(field);
            rest = later;
        }
        let crc = crc32(&salted);
        let mut out = [0; FRAME_HEADER_BYTES];
        let (front, back) = out.split_at_mut(4);
        front.copy_from_slice(&crc.to_le_bytes());
        back.copy_from_slice(salted.get(8..).unwrap_or_default());
        out
    }

    /// `None` where the checksum does not fit this salt, or the tags mean nothing: then these bytes are not a header.
    pub(super) fn decode(bytes: &[u8; FRAME_HEADER_BYTES], salt: u64) -> Option<Self> {
        let [c0, c1, c2, c3, l0, l1, l2, l3, p0, p1, p2, p3, kind, codec, s0, s1, rest @ ..] = *bytes;
        let [n0, n1, n2, n3, n4, n5, n6, n7, t0, t1, t2, t3, t4, t5, t6, t7] = rest;
        let mut salted = [0; FRAME_HEADER_BYTES + 4];
        let (front, back) = salted.split_at_mut(8);
        front.copy_from_slice(&salt.to_le_bytes());
        back.copy_from_slice(bytes.get(4..)?);
        if u32::from_le_bytes([c0, c1, c2, c3]) != crc32(&salted) {
            return None;
        }
        let codec = match codec {
            0 => RecordCodec::None,
            1 => RecordCodec::Lz4,
            2 => RecordCodec::Zstd,
            _ => return None,
        };
        Some(Self {
            length: u32::from_le_bytes([l0, l1, l2, l3]),
            payload_crc: u32::from_le_bytes([p0, p1, p2, p3]),
            kind: FrameKind::of(kind)?,
            codec,
            stream: u16::from_le_bytes([s0, s1]),
            lsn: Lsn(u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7])),
            time_ms: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        })
    }

    /// Whether these bytes may be a header at all: a look that costs next to nothing, before the checksum.
    pub(super) fn is_plausible(bytes: &[u8; FRAME_HEADER_BYTES]) -> bool {
        let [.., kind, codec, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *bytes;
        FrameKind::of(kind).is_some() && codec <= 2
    }
}

/// What a seal says about its segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Seal {
    pub(super) records: u64,
    pub(super) first: Lsn,
    /// Of the last record; `first` less one where there is none.
    pub(super) last: Lsn,
    pub(super) min_time_ms: u64,
    pub(super) max_time_ms: u64,
    /// Everything up to this LSN was durable before the seal was written.
    pub(super) durable: Lsn,
    pub(super) payload_bytes: u64,
    /// (LSN, offset) of a record every [`INDEX_EVERY_BYTES`] or so, in order.
    pub(super) index: Vec<(Lsn, u64)>,
}

impl Seal {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEAL_BYTES + self.index.len() * INDEX_ENTRY_BYTES);
        let (first, last, durable) = (self.first.0, self.last.0, self.durable.0);
        for field in [self.records, first, last, self.min_time_ms, self.max_time_ms, durable, self.payload_bytes] {
            out.put_u64(field);
        }
        out.put_u32(u32::try_from(self.index.len()).unwrap_or(u32::MAX));
        for (lsn, offset) in &self.index {
            out.put_u64(lsn.0);
            out.put_u64(*offset);
        }
        out
    }

    pub(super) fn decode(file: &Path, offset: u64, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(file, offset, bytes);
        let mut seal = Self {
            records: reader.u64("record count")?,
            first: Lsn(reader.u64("first LSN")?),
            last: Lsn(reader.u64("last LSN")?),
            min_time_ms: reader.u64("oldest time")?,
            max_time_ms: reader.u64("newest time")?,
            durable: Lsn(reader.u64("durable LSN")?),
            payload_bytes: reader.u64("payload bytes")?,
            index: Vec::new(),
        };
        let count = reader.u32("index length")? as usize;
        let expected = count.saturating_mul(INDEX_ENTRY_BYTES).saturating_add(SEAL_BYTES);
        let adds_up =
            seal.first.0.checked_add(seal.records).is_some_and(|next| Some(next) == seal.last.0.checked_add(1));
        if expected != bytes.len() || !adds_up {
            let found = format!("{} bytes, LSN {} to {}, {} records", bytes.len(), seal.first, seal.last, seal.records);
            return Err(Error::corrupt(file, offset, format!("a seal of {expected} bytes that adds up"), found));
        }
        seal.index.reserve_exact(count);
        for _ in 0..count {
            seal.index.push((Lsn(reader.u64("index LSN")?), reader.u64("index offset")?));
        }
        reader.finish()?;
        Ok(seal)
    }
}

/// The last bytes of a sealed segment: where its seal is.
pub(super) fn encode_trailer(seal_offset: u64, salt: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(TRAILER_BYTES);
    out.put_u64(seal_offset);
    out.put_u32(trailer_crc(seal_offset, salt));
    out.extend_from_slice(&SEAL_MAGIC);
    out
}

/// The seal's offset; `None` where these bytes are no trailer of this segment.
pub(super) fn decode_trailer(bytes: [u8; TRAILER_BYTES], salt: u64) -> Option<u64> {
    let (offset, rest) = bytes.split_first_chunk::<8>()?;
    let (crc, magic) = rest.split_first_chunk::<4>()?;
    let offset = u64::from_le_bytes(*offset);
    (magic == SEAL_MAGIC && u32::from_le_bytes(*crc) == trailer_crc(offset, salt)).then_some(offset)
}

fn trailer_crc(seal_offset: u64, salt: u64) -> u32 {
    let mut salted = Vec::with_capacity(16);
    salted.put_u64(salt);
    salted.put_u64(seal_offset);
    crc32(&salted)
}
