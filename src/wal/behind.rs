//! What lies behind damage: whatever is still of the same segment shows what the damage means.
//!
//! The bytes are looked through once, and frames that are whole are stepped over. Headers that are good in front of payloads that are not cost
//! another look at those payloads, for as many bytes as there are to be looked through. Chance makes no more of them; where somebody has planted
//! them, headers are believed from then on without their payloads: rather too much is found than too little.

use super::chunk::{CHUNK_BYTES, ChunkReader};
use super::format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, MAX_RECORD_BYTES, Seal};
use super::record::Lsn;
use crate::error::Result;

/// What was found behind damage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Later {
    /// Whether anything was.
    pub(super) any: bool,
    /// The highest LSN that it says was durable.
    pub(super) durable: Lsn,
    /// The highest LSN there is.
    pub(super) last: Lsn,
}

/// Looks from `from` on for anything that is of this segment and not older than `missing`.
///
/// # Errors
/// Only what reading reports.
pub(super) fn look_behind(reader: &ChunkReader, from: u64, missing: Lsn) -> Result<Later> {
    let mut later = Later::default();
    let (mut at, mut wanted, mut buffer) = (from, CHUNK_BYTES, Vec::new());
    // Bytes of payloads that may still turn out to be bad.
    let mut patience = reader.end().saturating_sub(from);
    while at + FRAME_HEADER_BYTES as u64 <= reader.end() {
        reader.read(&mut buffer, at, wanted)?;
        wanted = CHUNK_BYTES;
        let mut place = 0;
        let next = loop {
            let Some((found, header)) = reader.next_frame(&buffer, place, missing) else {
                // The last header that fits in starts here.
                break at + place.max(buffer.len() - FRAME_HEADER_BYTES + 1) as u64;
            };
            let (offset, whole) = (at + found as u64, FRAME_HEADER_BYTES + header.body_bytes());
            place = found + 1;
            if header.body_bytes() > MAX_RECORD_BYTES || whole as u64 > reader.end() - offset {
                continue;
            }
            if whole as u64 > patience {
                later.take(reader, &header, &[], offset);
                continue;
            }
            let Some(body) = buffer.get(found + FRAME_HEADER_BYTES..found + whole) else {
                wanted = whole.max(CHUNK_BYTES);
                break offset;
            };
            if reader.is_whole(&header, body) {
                later.take(reader, &header, body, offset);
                place = found + whole;
            } else {
                patience -= whole as u64;
            }
        };
        at = next;
    }
    Ok(later)
}

impl Later {
    fn take(&mut self, reader: &ChunkReader, header: &FrameHeader, body: &[u8], offset: u64) {
        self.any = true;
        match header.kind {
            FrameKind::Mark => self.durable = self.durable.max(header.lsn),
            FrameKind::Record(_) => self.last = self.last.max(header.lsn),
            FrameKind::Seal => {
                if let Ok(seal) = Seal::decode(reader.path(), offset, body) {
                    self.durable = self.durable.max(seal.durable);
                    self.last = self.last.max(seal.last);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::bytes::Bytes;
    use crate::checksum::crc32;
    use crate::fs::ReadFile;
    use crate::wal::format::RecordCodec;
    use crate::wal::record::RecordKind;

    const SALT: u64 = 5;

    /// Bytes that count how many of them are read.
    #[derive(Debug)]
    struct Counted(Vec<u8>, AtomicU64);

    impl ReadFile for Counted {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
            let start = usize::try_from(offset).unwrap();
            buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
            self.1.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            Ok(())
        }

        fn map(&self) -> Result<Bytes> {
            Ok(Bytes::from(self.0.clone()))
        }
    }

    fn header(kind: FrameKind, lsn: u64, length: usize, payload_crc: u32) -> Vec<u8> {
        let length = u32::try_from(length).unwrap();
        let (codec, lsn) = (RecordCodec::None, Lsn(lsn));
        FrameHeader { length, payload_crc, kind, codec, stream: 0, lsn, time_ms: lsn.0 }.encode(SALT).to_vec()
    }

    const RECORD: FrameKind = FrameKind::Record(RecordKind::Plain);

    fn look(bytes: Vec<u8>) -> (Later, u64) {
        let file = Arc::new(Counted(bytes, AtomicU64::new(0)));
        let end = file.len();
        let reader = ChunkReader::new(Arc::clone(&file) as Arc<dyn ReadFile>, Path::new("f").into(), SALT, 0, end);
        let later = look_behind(&reader, 1, Lsn(7)).unwrap();
        (later, file.1.load(Ordering::Relaxed))
    }

    #[test]
    fn planted_headers_cost_no_more_than_a_few_looks() {
        // Each claims the rest of the file; and one behind the other claims nothing, with a byte of rubbish in between.
        let (count, gap) = (4000, 400);
        let mut claiming = vec![0xff; 32];
        for left in (0..count).rev() {
            claiming.extend(header(RECORD, 8, left * (FRAME_HEADER_BYTES + gap) + gap, 1));
            claiming.resize(claiming.len() + gap, 0xff);
        }
        let mut small = vec![0xff; 32];
        for _ in 0..count * 10 {
            small.extend(header(RECORD, 9, 0, crc32(b"")));
            small.push(0xff);
        }
        for (bytes, last) in [(claiming, 8), (small, 9)] {
            let length = bytes.len() as u64;
            let (later, read) = look(bytes);
            assert!(later.any && later.last == Lsn(last), "{later:?}");
            assert!(read < 4 * length, "{read} bytes read of {length}");
        }
    }

    #[test]
    fn whole_frames_are_stepped_over_and_damaged_ones_are_not() {
        let large = vec![3; 2 * CHUNK_BYTES];
        for (crc, durable) in [(crc32(&large), Lsn::NONE), (1, Lsn(20))] {
            let mut payload = large.clone();
            // A mark inside of a payload says something only where the payload is not known to be one.
            payload.splice(100..132, header(FrameKind::Mark, 20, 0, 0));
            let crc = if crc == 1 { crc } else { crc32(&payload) };
            let mut bytes = vec![0xff; 1];
            bytes.extend(header(RECORD, 8, payload.len(), crc));
            bytes.extend(&payload);
            bytes.extend(header(RECORD, 9, 0, crc32(b"")));
            let (later, _) = look(bytes);
            assert_eq!((later.any, later.last, later.durable), (true, Lsn(9), durable), "{crc}");
        }
    }

    #[test]
    fn what_is_older_or_of_another_segment_is_nothing() {
        let mut bytes = vec![0xff; 1];
        bytes.extend(header(RECORD, 6, 0, crc32(b"")));
        let foreign = FrameHeader::decode(header(RECORD, 9, 0, 0).first_chunk().unwrap(), SALT).unwrap();
        bytes.extend(foreign.encode(SALT + 1));
        assert!(!look(bytes).0.any);
    }
}
