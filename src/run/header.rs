//! The header of a run: who it is, what it is built on, how it is laid out.

use std::path::Path;

use crate::checksum::crc32;
use crate::codec::{Put, Reader};
use crate::entry::{Families, Name, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Epoch, RunId, RunKind, StoreUid, Version};

/// First byte outside ASCII and a line end behind the name, so that a transfer as text shows.
const MAGIC: [u8; 8] = *b"\x89ALVRUN\n";
const FORMAT: u32 = 1;
/// Magic, format number, header length: the same in every format to come, as is the CRC at the header's end.
pub(super) const PRELUDE_BYTES: usize = 16;
/// More than 1024 families with the longest names need.
const MAX_HEADER_BYTES: usize = 256 << 10;
/// 64 KiB: the largest memory page in use.
const MAX_ALIGN_LOG2: u8 = 16;

/// How the pages of a run are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PageCodec {
    /// Not at all: pages are read in place and values handed out without a copy.
    #[default]
    None,
    /// LZ4 blocks: fast to read, about half the size on text.
    Lz4,
    /// Zstandard frames: smaller and slower than LZ4.
    Zstd,
}

/// What a run says about itself before its first entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunHeader {
    pub(crate) kind: RunKind,
    /// The version below the first change; 0 for a snapshot.
    pub(crate) from: Version,
    /// The version that the run leads to.
    pub(crate) to: Version,
    /// The epoch that made `to`.
    pub(crate) epoch: Epoch,
    /// This file's own id.
    pub(crate) id: RunId,
    /// The id of the single delta that made `to`; the run's own id if it is that delta.
    pub(crate) tip: RunId,
    /// The tip of `from`; [`RunId::NONE`] where `from` is 0.
    pub(crate) parent: RunId,
    pub(crate) uid: StoreUid,
    pub(crate) store: StateStoreId,
    pub(crate) families: Families,
    pub(crate) codec: PageCodec,
}

/// How the file is laid out, as its header has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// Pages start at multiples of this power of two.
    pub(super) align: u64,
    pub(super) header_bytes: u32,
    pub(super) header_crc: u32,
}

impl Layout {
    /// Index and filter blocks start at multiples of this: a filter line is one cache line.
    pub(super) fn block_align(&self) -> u64 {
        self.align.min(64)
    }
}

/// The next multiple of `align` (a power of two) from `position` on; `None` beyond 2^64.
#[inline]
pub(super) fn align_up(position: u64, align: u64) -> Option<u64> {
    let below = align.wrapping_sub(1); // a mask: a division would cost as much as the whole rest of a get's arithmetic
    Some(position.checked_add(below)? & !below)
}

impl RunHeader {
    /// What is wrong with the fields, if something is.
    fn contradiction(&self) -> Option<&'static str> {
        let single = self.kind == RunKind::Delta && self.from.next() == self.to;
        match () {
            () if self.from >= self.to => Some("a run that leads nowhere: `from` is not below `to`"),
            () if self.kind == RunKind::Snapshot && self.from != Version::EMPTY => {
                Some("a snapshot that does not start at version 0")
            }
            () if (self.from == Version::EMPTY) != (self.parent == RunId::NONE) => {
                Some("a parent id that does not go with `from`")
            }
            () if self.id == RunId::NONE || self.tip == RunId::NONE => Some("a run without an id or a tip"),
            () if single && self.tip != self.id => Some("a single delta whose tip is not itself"),
            () => None,
        }
    }

    /// The header's bytes, CRC included.
    ///
    /// # Errors
    /// `InvalidInput` where the fields contradict each other.
    pub(super) fn encode(&self, align: u64) -> Result<(Vec<u8>, Layout)> {
        if let Some(wrong) = self.contradiction() {
            return Err(Error::invalid(format!("run header: {wrong}")));
        }
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&MAGIC);
        out.put_u32(FORMAT);
        out.put_u32(0); // the length, filled in below
        out.put_u8(match self.kind {
            RunKind::Delta => 1,
            RunKind::Snapshot => 2,
        });
        out.put_u8(match self.codec {
            PageCodec::None => 0,
            PageCodec::Lz4 => 1,
            PageCodec::Zstd => 2,
        });
        out.put_u8(u8::try_from(align.trailing_zeros()).unwrap_or(0));
        out.put_u8(0); // encryption: none
        out.put_u32(0); // flags: none
        out.put_u64(self.from.0);
        out.put_u64(self.to.0);
        out.put_u64(self.epoch.0);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.tip.0);
        out.extend_from_slice(&self.parent.0);
        out.extend_from_slice(&self.uid.0);
        out.put_short(self.store.operator().as_str().as_bytes());
        out.put_u32(self.store.partition());
        out.put_short(self.store.name().as_str().as_bytes());
        out.put_u16(u16::try_from(self.families.names().len()).unwrap_or(u16::MAX)); // at most 1024
        self.families.names().iter().for_each(|name| out.put_short(name.as_str().as_bytes()));
        let header_bytes = u32::try_from(out.len() + 4).unwrap_or(u32::MAX); // at most 256 KiB
        if let Some(field) = out.get_mut(12..PRELUDE_BYTES) {
            field.copy_from_slice(&header_bytes.to_le_bytes());
        }
        let header_crc = crc32(&out);
        out.put_u32(header_crc);
        Ok((out, Layout { align, header_bytes, header_crc }))
    }

    /// The header's length, out of the first [`PRELUDE_BYTES`] of a file.
    pub(super) fn length(path: &Path, prelude: &[u8]) -> Result<usize> {
        let mut reader = Reader::new(path, 0, prelude);
        let magic = reader.array::<8>("magic")?;
        if magic != MAGIC {
            return Err(Error::corrupt(path, 0, "the magic of a run", magic.escape_ascii().to_string()));
        }
        reader.u32("format number")?; // believed only with the CRC
        let length = usize::try_from(reader.u32("header length")?).unwrap_or(usize::MAX);
        if !(PRELUDE_BYTES + 4..=MAX_HEADER_BYTES).contains(&length) {
            return Err(Error::corrupt(path, 12, "a header of at most 256 KiB", format!("{length} bytes")));
        }
        Ok(length)
    }

    /// Reads a header out of exactly its bytes.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for a whole header of another format, codec or encryption.
    pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<(Self, Layout)> {
        let (body, tail) = bytes.split_last_chunk::<4>().unwrap_or((bytes, &[0; 4]));
        let header_crc = u32::from_le_bytes(*tail);
        if crc32(body) != header_crc {
            let found = format!("{:08x}", crc32(body));
            return Err(Error::corrupt(path, 0, format!("header CRC {header_crc:08x}"), found));
        }
        let mut reader = Reader::new(path, 8, body.get(8..).unwrap_or_default());
        let format = reader.u32("format number")?;
        if format != FORMAT {
            return Err(unsupported(path, &format!("it has format {format}, this build reads format {FORMAT}")));
        }
        let header_bytes = reader.u32("header length")?;
        let kind = match reader.u8("kind")? {
            1 => RunKind::Delta,
            2 => RunKind::Snapshot,
            other => return Err(reader.corrupt("kind 1 or 2", other.to_string())),
        };
        let codec = match reader.u8("codec")? {
            0 => PageCodec::None,
            1 => PageCodec::Lz4,
            2 => PageCodec::Zstd,
            other => return Err(unsupported(path, &format!("its pages have codec {other}"))),
        };
        let align_log2 = reader.u8("alignment")?;
        if align_log2 > MAX_ALIGN_LOG2 {
            return Err(reader.corrupt("an alignment of at most 64 KiB", format!("2^{align_log2}")));
        }
        let encryption = reader.u8("encryption")?;
        if encryption != 0 {
            return Err(unsupported(path, &format!("it is encrypted (method {encryption})")));
        }
        let flags = reader.u32("flags")?;
        if flags != 0 {
            return Err(unsupported(path, &format!("it uses flags {flags:#x}, which this build does not know")));
        }
        let header = Self::decode_identity(&mut reader, kind, codec)?;
        if let Some(wrong) = header.contradiction() {
            return Err(reader.corrupt("a header that makes sense", wrong));
        }
        reader.finish()?;
        Ok((header, Layout { align: 1 << align_log2, header_bytes, header_crc }))
    }

    fn decode_identity(reader: &mut Reader<'_>, kind: RunKind, codec: PageCodec) -> Result<Self> {
        Ok(Self {
            kind,
            codec,
            from: Version(reader.u64("from")?),
            to: Version(reader.u64("to")?),
            epoch: Epoch(reader.u64("epoch")?),
            id: RunId(reader.array("run id")?),
            tip: RunId(reader.array("tip")?),
            parent: RunId(reader.array("parent")?),
            uid: StoreUid(reader.array("store uid")?),
            store: {
                let operator = reader.short_text("operator")?;
                let partition = reader.u32("partition")?;
                let name = reader.short_text("store name")?;
                StateStoreId::new(operator, partition, name)
                    .map_err(|e| reader.corrupt("a store id", "bad names").with_source(e))?
            },
            families: {
                let mut names = Vec::new(); // grows with what is really there
                for _ in 0..reader.u16("family count")? {
                    let text = reader.short_text("family name")?;
                    names.push(Name::new(text).map_err(|e| reader.corrupt("a family name", text).with_source(e))?);
                }
                Families::from_names(names).map_err(|e| reader.corrupt("a family table", "a bad one").with_source(e))?
            },
        })
    }
}

fn unsupported(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{} cannot be read: {why}", path.display()))
}
